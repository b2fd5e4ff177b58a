"""`.efz` files: what `optimize -o` writes can be inspected, run, explained and shown, and cannot be tampered with."""

import json
import re
import zipfile
from html.parser import HTMLParser

import pytest
from conftest import ROOT, SMALL_PROGRAM
from mutate import COUNT, damaged_bytes, damaged_entry, hostile, places
from test_mutations import refused


@pytest.fixture(scope="module")
def plan(equiforge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("efz")
    (folder / "small.ef").write_text(SMALL_PROGRAM)
    path = folder / "small.efz"
    found = equiforge.json(
        "optimize", folder / "small.ef", "--budget", "8s", "--store", folder / "store.db", "-o", path, timeout=200
    )
    return path, found


def test_inspect_shows_the_program_as_it_was_given(equiforge, plan):
    path, _ = plan
    given = equiforge.json("inspect", path.with_suffix(".ef"))
    value = equiforge.json("inspect", path)
    assert value["operators"] == given["operators"]
    assert [(t["name"], t["dtype"], t["shape"]) for t in value["inputs"]] == [
        ("x", "f32", [8, 48]), ("g", "f32", [48]), ("w", "f32", [48, 40])]  # fmt: skip
    assert [t["shape"] for t in value["outputs"]] == [[8, 40]]
    assert value["external"] == []


def test_inspect_prints_the_implementation(equiforge, plan, tmp_path):
    """With its schedule; both together are what its code was printed from."""
    path, found = plan
    text = equiforge("inspect", path, "--text")
    with zipfile.ZipFile(path) as file:
        candidate, code = (file.read(f"regions/0/{name}").decode() for name in ("candidate.ef", "kernels.c"))
    assert text.stdout == f"# step 0: region 0 in c, schedule: {found['schedule'] or 'none'}\n" + candidate
    (tmp_path / "again.ef").write_text(text.stdout)
    arguments = ("--language", "c", "--name", "program", "--schedule", found["schedule"])
    again = equiforge("emit", tmp_path / "again.ef", *arguments)
    assert again.returncode == 0, again.stderr
    code = code.replace("ef_program", "program")  # which users cannot call it
    printed, kept = (re.sub(r"/\*.*?\*/|\s+", "", text, flags=re.S) for text in (again.stdout, code))
    assert printed.split("constunsignedlonglong")[0] == kept.split("constuint64_tprogram_work")[0]


def test_run_compiles_checks_and_times_it(equiforge, plan):
    path, found = plan
    value = equiforge.json("run", path, "--check", "--repeat", "5", timeout=200)
    assert value["us"] > 0 and value["original_us"] > 0
    assert 0 < value["rel_l2"] < 1e-5
    assert value["external"] == 0
    assert found["rel_l2"] < 1e-5
    assert [region["uses"] for region in value["regions"]] == [1]


def test_explain_derives_and_checks_it_again(equiforge, plan):
    path, _ = plan
    value = equiforge.json("explain", path)
    assert value["equal"] and value["checked"]
    with zipfile.ZipFile(path) as file:
        stored = json.loads(file.read("regions/0/derivation.json"))
        same = file.read("regions/0/candidate.ef") == file.read("regions/0/program.ef")
    assert stored == value["steps"]
    assert bool(stored) != same  # the fastest may be the program as it was given, under another schedule


def test_explain_does_not_believe_the_file(equiforge, plan, tmp_path):
    """An implementation of something else, with a derivation that says otherwise."""
    path, _ = plan
    forged = tmp_path / "forged.efz"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("candidate.ef"):
                data = SMALL_PROGRAM.replace("mul(x, g)", "add(x, g)").encode()
            new.writestr(name, data)
    result = equiforge("explain", forged, "--json", "--time-limit", "20")
    assert result.returncode == 1
    assert "not" in result.stderr and len(result.stderr.splitlines()) == 1


def test_wrong_code_is_caught(equiforge, plan, tmp_path):
    path, _ = plan
    wrong = tmp_path / "wrong.efz"
    source = (
        "#include <stdint.h>\nconst uint64_t ef_program_work = 64;\n"
        "void ef_program(void *const *in, void *const *out, char *work, int threads)\n{ %s }\n"
    )
    for body, words in (
        ("((float *)out[0])[0] = 1e30f;", "error"),
        ("__builtin_trap();", "signal|died|Illegal"),
        ("this is no C", "compile"),
    ):
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(wrong, "w") as new:
            for name in old.namelist():
                new.writestr(name, source % body if name.endswith("kernels.c") else old.read(name))
        result = equiforge("run", wrong, "--check", timeout=200)
        assert (result.returncode, result.stdout) == (1, "")
        assert len(result.stderr.splitlines()) == 1
        assert re.search(words, result.stderr), result.stderr


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("k0.m.0=0", r"k0\.m\.0 takes whole numbers from 1 to \d+"),
        ("k0.m.0=-4", "k0.m.0 takes "),
        ("k0.m.0=18446744073709551617", "k0.m.0 takes "),
        ("k0.m.0=4 k7.n.0=8", "'k7.n.0'"),
        ("k0.warps=4", "'k0.warps' is of GPUs"),
        ("k0.m.7=4", "'k0.m.7'"),
        ("k0.m.0", "'k0.m.0' is no schedule"),
        ("k0.m.0=4\nk0.n.0=8", "not one line"),
    ],
)
def test_a_damaged_schedule_is_refused(equiforge, plan, tmp_path, schedule, words):
    path, _ = plan
    damaged = tmp_path / "damaged.efz"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(damaged, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                manifest["regions"][0]["schedule"] = schedule
                data = json.dumps(manifest)
            new.writestr(name, data)
    for arguments in (("inspect",), ("run",), ("explain",), ("report", "-o", tmp_path / "page.html")):
        result = equiforge(*arguments, damaged)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert re.match(re.escape(str(damaged)) + ": .*schedule.*" + words, result.stderr), result.stderr


class Page(HTMLParser):
    """Whether tags are balanced, and what a page would load."""

    VOID = ("meta", "br", "img", "link", "input")
    OPTIONAL = ("th", "html", "p")

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loads = [], "", []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for key, value in attrs if key in ("src", "srcset", "data")]
        self.loads += [value for key, value in attrs if key == "href" and not value.startswith("#")]
        assert tag not in ("script", "iframe", "object", "link")
        if tag not in self.VOID + self.OPTIONAL:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.OPTIONAL:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_report_is_one_page_that_loads_nothing(equiforge, plan, tmp_path):
    path, _ = plan
    page = tmp_path / "report.html"
    result = equiforge("report", path, "-o", page)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    parser = Page()
    parser.feed(page.read_text())
    assert parser.open == [] and parser.loads == []
    for word in ("small", "Measured", "Program", "Implementation", "Schedule", "Code", "floor", "matmul(mul(x, g), w)"):
        assert word in parser.text


def test_report_escapes_what_the_file_says(equiforge, plan, tmp_path):
    path, _ = plan
    evil, page = tmp_path / "evil.efz", tmp_path / "evil.html"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(evil, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                manifest["name"] = "<script>alert(1)</script>"
                manifest["regions"][0]["device"] = '"><img src=x>=<b>'
                manifest["regions"][0]["schedule"] = '"><script><b>.0=1'
                data = json.dumps(manifest)
            new.writestr(name, data)
    assert equiforge("report", evil, "-o", page).returncode == 0
    parser = Page()
    parser.feed(page.read_text())
    assert parser.loads == [] and "<script>" in parser.text


def test_the_file_is_written_whole_or_not_at_all(equiforge, plan, tmp_path):
    path, _ = plan
    store = path.parent / "store.db"
    for target in (tmp_path / "no such folder" / "x.efz", tmp_path):
        for arguments in (
            ("optimize", path.with_suffix(".ef"), "--budget", "8s", "--store", store, "-o", target),
            ("report", path, "-o", target),
        ):
            result = equiforge(*arguments)
            assert (result.returncode, result.stdout) == (2, "")
            assert len(result.stderr.splitlines()) == 1 and str(target) in result.stderr
    assert list(tmp_path.iterdir()) == []
    before = path.read_bytes()
    for verb in ("report", "optimize"):
        result = equiforge(verb, path, "-o", path)
        assert result.returncode == 2 and "overwritten" in result.stderr
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir() if "store" not in entry.name) == [
        "small.ef",
        "small.efz",
    ]


def test_a_second_optimisation_writes_the_same_file(equiforge, plan, tmp_path):
    path, _ = plan
    again = tmp_path / "again.efz"
    found = equiforge.json(
        "optimize", path.with_suffix(".ef"), "--budget", "8s", "--store", path.parent / "store.db", "-o", again
    )
    assert found["stored"]
    with zipfile.ZipFile(path) as one, zipfile.ZipFile(again) as two:
        assert one.namelist() == two.namelist()
        for name in one.namelist()[1:]:
            assert one.read(name) == two.read(name)


@pytest.mark.parametrize("arguments", [
    ("report", "small.efz"), ("report",), ("explain", "tests/programs/lora_b1.ef"), ("explain",),
    ("run", "small.efz", "--dims", "m=3"), ("run", "small.efz", "--emit"), ("run", "small.efz", "--tile", "m.0=1"),
])  # fmt: skip
def test_bad_usage(equiforge, arguments):
    result = equiforge(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", ["inspect", "run", "explain", "report"])
def test_other_files_are_refused_by_every_verb(equiforge, tmp_path, verb):
    path = tmp_path / "x.efz"
    more = ("-o", tmp_path / "page.html") if verb == "report" else ()
    archive = (ROOT / "tests/frontend/archives/2.13/types.pt2").read_bytes()
    for contents in (None, b"", b"PK\3\4" * 50, archive):
        if contents is not None:
            path.write_bytes(contents)
        result = equiforge(verb, path, *more)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith(f"{path}: ")
    assert not (tmp_path / "page.html").exists()


def test_damaged_bytes(equiforge, plan, tmp_path):
    """What is not refused must print what the whole file prints: only bytes without meaning were hit."""
    whole = plan[0].read_bytes()
    expected = equiforge("inspect", plan[0], "--json").stdout
    path = tmp_path / "small.efz"
    count = 0
    for seed in range(COUNT):
        path.write_bytes(damaged_bytes(whole, seed))
        result = equiforge("inspect", path, "--json")
        count += refused(result, path)
        assert result.stdout in ("", expected), seed
    assert count > COUNT * 0.8
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.efz"]


def test_damaged_json(equiforge, plan, tmp_path):
    path = tmp_path / "small.efz"
    count = 0
    for seed in range(COUNT):
        damaged_entry(plan[0], path, seed, lambda name: name == "manifest.json")
        count += refused(equiforge("inspect", path), path)
    assert count > COUNT * 0.5
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.efz"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("verb", ["inspect", "run", "explain", "report"])
@pytest.mark.parametrize(
    "case",
    ["bomb", "manifest bomb", "twice", "nothing", "../../evil", "regions/../../evil", "/evil", "regions\\..\\evil"],
)
def test_hostile_files(equiforge, tmp_path, case, verb):
    path, page = tmp_path / "m.efz", tmp_path / "page.html"
    manifest = " " * 300_000_000 if case == "manifest bomb" else "{}"
    hostile(path, "more" if case == "manifest bomb" else case, ("manifest.json", manifest))
    assert refused(equiforge(verb, path, *(("-o", page) if verb == "report" else ())), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.efz"]
    assert not (tmp_path.parent / "evil").exists()


ABSURD = [-1, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1, 10**30, 1e308, None, True, "9" * 400, [0] * 100000, "nan"]


@pytest.mark.parametrize("size", ABSURD, ids=lambda value: str(value)[:12])
def test_absurd_sizes(equiforge, plan, tmp_path, size):
    """In place of each number of the manifest in turn: it is refused, or the file does not depend on it."""
    path = tmp_path / "small.efz"
    with zipfile.ZipFile(plan[0]) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    manifest = json.loads(entries["manifest.json"])
    numbers = [at for at in places(manifest) if isinstance(at_of(manifest, at), (int, float))]
    for at in numbers:
        changed = json.loads(entries["manifest.json"])
        at_of(changed, at[:-1])[at[-1]] = size
        with zipfile.ZipFile(path, "w") as new:
            for name, data in entries.items():
                new.writestr(name, json.dumps(changed) if name == "manifest.json" else data)
        refused(equiforge("inspect", path), path)


def at_of(tree, path):
    for step in path:
        tree = tree[step]
    return tree

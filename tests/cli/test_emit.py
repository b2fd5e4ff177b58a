"""`emit` prints programs as code, under legal schedules alone."""

import ast
import builtins
import re
import subprocess
import zipfile

import pytest

PROGRAM = "tests/programs/mha_decode_b1.ef"
TILED = "tests/derivations/mha_decode_b1_split.ef"


def refused(equiforge, words, *arguments):
    result = equiforge("emit", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert re.search(words, result.stderr), result.stderr


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("k0.overlap=7", "k0.overlap takes 0, 1, 2, 3 or 4"),
        ("k0.warps=3", "k0.warps takes 1, 2, 4, 8 or 16"),
        ("warps=0", "warps takes 1, 2, 4, 8 or 16"),
        ("k0.warps=-1", "k0.warps takes 1, 2, 4, 8 or 16"),
        ("k0.warps=+4", "k0.warps takes "),
        ("k0.warps=0x4", "k0.warps takes "),
        ("k0.warps=", "k0.warps takes "),
        ("k0.warps=18446744073709551620", "k0.warps takes "),
        ("k1.stages=9", "k1.stages takes 1, .* 7 or 8"),
        ("unit=2,k0.warps=4", "unit takes 0 or 1"),
        ("load=2", "load takes 0 or 1"),
        ("order=2", "order takes 0 or 1"),
        ("group=0", "group takes 1, 2, 4, 8 or 16"),
        ("persist=3", "persist takes 0, 1, 2 or 4"),
        ("s.1=0", r"s\.1 takes whole numbers from 1 to 1099511627776"),
        ("k0.s.1=1099511627777", r"k0\.s\.1 takes whole numbers from 1 to"),
        ("k9.warps=4", "no kernel of 'k9.warps': they are 2, from k0 on"),
        ("k99999999999999999999.warps=4", "no kernel of"),
        ("k0.frob=4", "no kernel has a parameter 'k0.frob'"),
        ("z.0=4", "no kernel has a parameter 'z.0'"),
        ("s.2=4", "no kernel has a parameter 's.2'"),
        ("k0.warps", "'k0.warps' is no schedule"),
        ("=4", "'=4' is no schedule"),
        ("k0.warps=4\nk0.load", "'k0.load' is no schedule"),
        ("k0.\nwarps=4", "no kernel has a parameter"),
        ("k0.warps=4,,k0.load=1", "is no schedule"),
        ("k0.warps=4;k0.load=1", "k0.warps takes "),
    ],
)
def test_illegal_schedules_are_refused(equiforge, schedule, words):
    refused(equiforge, words, TILED, "--schedule", schedule)


def test_c_has_tiles_alone(equiforge):
    refused(equiforge, "'k0.warps' is of GPUs", TILED, "--language", "c", "--schedule", "k0.warps=4")
    assert equiforge("emit", TILED, "--language", "c", "--schedule", "s.1=16").returncode == 0


def test_a_printed_schedule_is_read_again(equiforge):
    """As the head of the module has it, and as optimised modules have it."""
    first = equiforge("emit", PROGRAM, "--schedule", "warps=2,k0.overlap=1,k1.persist=2,k0.stages=8").stdout
    schedule = re.search(r"^Schedule: (.*?)^\"\"\"", first, re.M | re.S)[1]
    assert "\n" in schedule.strip() and "k0.overlap=1" in schedule
    for text in (schedule, f" {schedule}", schedule.replace(",\n", ",").replace(",", " ")):
        assert equiforge("emit", PROGRAM, "--schedule", text).stdout == first


def test_help_lists_the_values_that_are_legal(equiforge):
    """As the refusals of others do."""
    listed = equiforge("emit", "--help").stdout.partition("kernels for GPUs have")[2]
    of = dict(re.findall(r"^  ([a-z]+) +([\d, or]+\d):", listed, re.M))
    assert len(of) == 8
    for name, values in of.items():
        refused(equiforge, f"{name} takes {values}$", TILED, "--schedule", f"{name}=99")


@pytest.mark.parametrize(
    "name",
    ["", "3x", "a;b", "a b", "é", "def", "launch", "torch", "tl", "k0_y", "x" * 1001]
    + ["_evenly", "_resident", "_mod_int", "_x", "ef_x", "EF_X"],
)
def test_what_no_function_can_be_called(equiforge, name):
    refused(equiforge, "can(not)? be called", TILED, "--name", name)


@pytest.mark.parametrize("name", ["while", "main", "3x", "asm", "typeof", "_Bool", "size_t", "ef_vec", "EF_LANES"])
def test_what_no_function_in_c_can_be_called(equiforge, name):
    refused(equiforge, "can(not)? be called", TILED, "--language", "c", "--name", name)


def names_in_modules(source):
    """What a module looks up: names that it defines, imports or takes from Python."""
    tree = ast.parse(source)
    local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            local |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    top = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return (read - local) | top | (read & set(dir(builtins)))


def test_no_function_is_called_as_what_modules_use(equiforge):
    found = set()
    for settings in ("overlap=0", "persist=1,overlap=2,load=1", "unit=0,persist=2,overlap=4,order=1"):
        for file in (PROGRAM, TILED, "tests/triton/programs/divisions.ef"):
            found |= names_in_modules(equiforge("emit", file, "--name", "fine", "--schedule", settings).stdout)
    assert {"tl", "launch", "float", "min", "_resident", "gdc_wait"} <= found
    for name in found - {"fine"}:
        refused(equiforge, "cannot be called", TILED, "--name", name)


@pytest.mark.parametrize("standard", ["gnu17", "gnu2x"])
def test_no_function_is_called_as_what_headers_declare(equiforge, standard):
    """Functions, types and macros that the compiler here knows once it has read them."""
    source = equiforge("emit", TILED, "--language", "c").stdout
    head = source[: source.index("/* One vector register")]

    def preprocessed(*flags):
        command = ["cc", f"-std={standard}", "-fopenmp", *flags, "-E", "-P", "-"]
        return subprocess.run(command, input=head, check=True, capture_output=True, text=True).stdout

    text = preprocessed()
    names = {found[1] for part in text.split(";") if (found := re.search(r"\b([A-Za-z]\w*) *\(", part))}
    names |= set(re.findall(r"typedef [^;{}]*?\b([A-Za-z]\w*);", text))
    names |= set(re.findall(r"^#define ([A-Za-z]\w*)", preprocessed("-dM"), re.M))
    assert {"expf", "memcpy", "int8_t", "omp_get_num_threads", "INT8_C", "NULL"} <= names
    for name in names:
        refused(equiforge, "cannot be called", TILED, "--language", "c", "--name", name)


@pytest.mark.parametrize(
    "name", ["expx", "strided", "memory_attention", "index_add", "kv", "mlp_t5", "MLA_DECODE", "ef"]
)
def test_other_names_compile(equiforge, name, tmp_path):
    source = equiforge("emit", PROGRAM, "--language", "c", "--name", name).stdout
    assert f"void {name}(" in source
    (tmp_path / "code.c").write_text(source)
    command = ["cc", "-fopenmp", "-fsyntax-only", "-Werror", tmp_path / "code.c"]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize("name", ["exp", "memcpy", "size_t", "while", "ef_vec", "lambda", "torch", "_evenly"])
def test_a_program_that_is_called_as_no_function_can_be_gives_it_another_name(equiforge, name, tmp_path):
    path = tmp_path / "p.ef"
    path.write_text(f"program {name}\ndim m = 8\ninput x: f32[m]\noutput y = exp(x)\n")
    code = equiforge("emit", path, "--language", "c").stdout
    (tmp_path / "code.c").write_text(code)
    command = ["cc", "-fopenmp", "-fsyntax-only", "-Werror", tmp_path / "code.c"]
    subprocess.run(command, check=True, timeout=60)
    functions = [f.name for f in ast.parse(equiforge("emit", path).stdout).body if isinstance(f, ast.FunctionDef)]
    assert functions[-1] in (name, "program")
    assert len(functions) == len(set(functions))
    assert "void program(" in code or name in ("lambda", "torch")


@pytest.mark.parametrize("verb", ["emit", "optimize", "search"])
def test_optimised_modules_are_told_apart(equiforge, tmp_path, verb):
    path = tmp_path / "x.efz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", "{}")
    result = equiforge(verb, path)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.search("is an optimised module: inspect, run, explain and report", result.stderr)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("language", ["triton", "c"])
@pytest.mark.parametrize(
    ("file", "dims"),
    [
        ("tests/programs/attn_sinks.ef", "h=68719476736"),
        ("tests/programs/variants/gqa_decode.ef", "g=1099511627776"),
        ("tests/triton/programs/padded_state.ef", "b=7,n=2147483648"),
        (TILED, "h=1099511627776,s=1099511627776"),
    ],
)
def test_dimensions_that_make_too_large_tensors_are_refused(equiforge, language, file, dims):
    words = "^with these dimensions a tensor has more than 1099511627776 elements$"
    refused(equiforge, words, file, "--dims", dims, "--language", language)


@pytest.mark.parametrize("value", ["-1", "x", "", "1099511627777", "18446744073709551618"])
def test_an_extent_is_a_whole_number(equiforge, value):
    refused(equiforge, f"'h={value}' needs a whole number up to 1099511627776", TILED, "--dims", f"h={value}")

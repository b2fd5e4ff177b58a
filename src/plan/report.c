/* The report as HTML: see report.h. Everything that comes from the plan is escaped: a file may say anything. */
#include "plan/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "support/file.h"

static const char style[] =
    ":root{color-scheme:light dark;--line:#8884;--faint:#8882;--best:#2a7;--was:#88a;--floor:#c93}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.6rem;margin-bottom:.2rem}h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{text-align:left;padding:.25rem .9rem .25rem 0;"
    "border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right;"
    "font-variant-numeric:tabular-nums}pre{background:var(--faint);padding:.8rem;overflow:auto;border-radius:.4rem;"
    "font-size:13px;line-height:1.4}code{font-size:.92em}summary{cursor:pointer;margin:.6rem 0;font-weight:600}"
    ".bar{display:grid;grid-template-columns:6rem 1fr;gap:.3rem .8rem;align-items:center;margin:.8rem 0}"
    ".bar div{height:1.1rem;border-radius:.2rem;min-width:2px}.was{background:var(--was)}.best{background:var(--best)}"
    ".floor{background:var(--floor)}ol.proof li{margin:.5rem 0}.rule{font-weight:600}.note{opacity:.75}";

/* ---- text ---- */

static void escape(ef_strbuf *out, const char *text)
{
    static const struct {
        char c;
        const char *as;
    } special[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
    for (; *text; text++) {
        const char *as = NULL;
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            if (*text == special[i].c)
                as = special[i].as;
        if (as)
            ef_strbuf_puts(out, as);
        else
            ef_strbuf_add(out, text, 1);
    }
}

/* TAG with escaped text in it; `tag` may have attributes. */
static void element(ef_strbuf *out, const char *tag, const char *text)
{
    ef_strbuf_printf(out, "<%s>", tag);
    escape(out, text);
    ef_strbuf_printf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static void number_cell(ef_strbuf *out, const char *format, double value)
{
    ef_strbuf_puts(out, "<td class=n>");
    if (value > 0)
        ef_strbuf_printf(out, format, value);
    else
        ef_strbuf_puts(out, "–");
    ef_strbuf_puts(out, "</td>");
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* ---- the module ---- */

static void type_of(ef_strbuf *out, const ef_mvalue *v)
{
    ef_strbuf_puts(out, v->dtype < EF_DTYPE_COUNT ? ef_dtype_names[v->dtype] : v->torch_dtype);
    ef_strbuf_puts(out, "[");
    for (uint32_t d = 0; d < v->rank; d++) {
        ef_strbuf_puts(out, d ? ", " : "");
        if (v->size[d] < 0)
            ef_strbuf_puts(out, "?");
        else
            ef_strbuf_printf(out, "%" PRId64, v->size[d]);
    }
    ef_strbuf_puts(out, "]");
}

static void value_rows(ef_strbuf *out, const ef_plan *plan)
{
    static const char *const kinds[] = {[EF_MV_INPUT] = "input",
                                        [EF_MV_PARAMETER] = "parameter",
                                        [EF_MV_BUFFER] = "buffer",
                                        [EF_MV_CONSTANT] = "constant"};
    for (uint32_t i = 0; i < plan->values; i++) {
        const ef_mvalue *v = &plan->value[i];
        if (v->kind == EF_MV_RESULT)
            continue;
        ef_strbuf_puts(out, "<tr>");
        element(out, "td", kinds[v->kind]);
        element(out, "td", v->kind == EF_MV_INPUT ? v->name : v->target);
        ef_strbuf_puts(out, "<td><code>");
        type_of(out, v);
        ef_strbuf_puts(out, "</code></td></tr>");
    }
    for (uint32_t i = 0; i < plan->outputs; i++) {
        const ef_moutput *o = &plan->output[i];
        const ef_mvalue *v = o->value == EF_NONE ? NULL : &plan->value[o->value];
        ef_strbuf_puts(out, "<tr><td>output</td>");
        element(out, "td", v ? v->name : o->literal);
        ef_strbuf_puts(out, "<td><code>");
        if (v)
            type_of(out, v);
        ef_strbuf_puts(out, "</code></td></tr>");
    }
}

static void names(ef_strbuf *out, const ef_plan *plan, const uint32_t *ids, uint32_t count)
{
    ef_strbuf_puts(out, "<td>");
    for (uint32_t i = 0; i < count; i++) {
        ef_strbuf_puts(out, i ? ", " : "");
        escape(out, plan->value[ids[i]].name);
    }
    ef_strbuf_puts(out, "</td>");
}

static void step_rows(ef_strbuf *out, const ef_plan *plan)
{
    for (uint32_t i = 0; i < plan->steps; i++) {
        const ef_plan_step *s = &plan->step[i];
        ef_strbuf_puts(out, "<tr>");
        if (s->kind == EF_MS_REGION) {
            ef_strbuf_printf(out, "<td><a href=#region%u>region %u</a></td>", s->region, s->region);
        } else {
            ef_strbuf_puts(out, "<td>");
            escape(out, s->target);
            ef_strbuf_puts(out, " <span class=note>stays in PyTorch: ");
            escape(out, s->reason ? s->reason : "");
            ef_strbuf_puts(out, "</span></td>");
        }
        names(out, plan, s->in, s->ins);
        names(out, plan, s->out, s->outs);
        ef_strbuf_puts(out, "</tr>");
    }
}

static void module(ef_strbuf *out, const ef_plan *plan)
{
    ef_strbuf_puts(out, "<h2>Module</h2><table><tr><th></th><th>name</th><th>type</th></tr>");
    value_rows(out, plan);
    ef_strbuf_puts(out, "</table><table><tr><th>step</th><th>takes</th><th>gives</th></tr>");
    step_rows(out, plan);
    ef_strbuf_puts(out, "</table>");
}

/* ---- measurements ---- */

static void summary(ef_strbuf *out, const ef_plan *plan)
{
    ef_strbuf_puts(out, "<h2>Measured</h2><table><tr><th>region<th class=n>original, us<th class=n>best, us"
                        "<th class=n>speed-up<th class=n>warm, us<th class=n>floor, us<th class=n>best / floor"
                        "<th class=n>relative L2<th class=n>kernels<th class=n>candidates<th class=n>measured</tr>");
    for (uint32_t i = 0; i < plan->regions; i++) {
        const ef_plan_region *r = &plan->region[i];
        ef_strbuf_printf(out, "<tr><td><a href=#region%u>%u</a>%s</td>", i, i, r->original ? " (as given)" : "");
        number_cell(out, "%.1f", r->original_us);
        number_cell(out, "%.1f", r->us);
        number_cell(out, "%.2f×", ratio(r->original_us, r->us));
        number_cell(out, "%.1f", r->warm_us);
        number_cell(out, "%.1f", r->floor_us);
        number_cell(out, "%.2f×", ratio(r->us, r->floor_us));
        number_cell(out, "%.2g", r->rel_l2);
        number_cell(out, "%.0f", r->kernels);
        number_cell(out, "%.0f", (double)r->candidates);
        number_cell(out, "%.0f", (double)r->measured);
        ef_strbuf_puts(out, "</tr>");
    }
    ef_strbuf_puts(out,
                   "</table><p class=note>Cold: a call's inputs are in no cache. The floor is the time that moving "
                   "inputs and outputs alone takes. Errors are against float64.</p>");
}

/* None of a time that is not known. */
static void bar(ef_strbuf *out, const char *name, const char *class, double us, double most)
{
    if (us > 0)
        ef_strbuf_printf(out, "<span>%s</span><div class=%s style=\"width:%.2f%%\" title=\"%.2f us\"></div>", name,
                         class, 100 * us / most, us);
}

/* How far from the roofline: floor, best and original, to scale. */
static void roofline(ef_strbuf *out, const ef_plan_region *r)
{
    double most = fmax(r->original_us, fmax(r->us, r->floor_us));
    ef_strbuf_puts(out, "<div class=bar>");
    bar(out, "original", "was", r->original_us, most);
    bar(out, "best", "best", r->us, most);
    bar(out, "floor", "floor", r->floor_us, most);
    ef_strbuf_puts(out, "</div>");
}

/* ---- a region ---- */

/* "k0.m.0=16 k0.k.1=64" as a table. */
static void schedule(ef_strbuf *out, const char *text)
{
    ef_strbuf_puts(out, "<table><tr><th>parameter</th><th class=n>value</th></tr>");
    while (*text) {
        size_t length = strcspn(text, " "), name = strcspn(text, "= ");
        ef_strbuf head = {0}, tail = {0};
        ef_strbuf_add(&head, text, name);
        ef_strbuf_add(&tail, text + name + (name < length), length - name - (name < length));
        if (length) {
            ef_strbuf_puts(out, "<tr>");
            element(out, "td", head.text);
            element(out, "td class=n", tail.text);
            ef_strbuf_puts(out, "</tr>");
        }
        ef_strbuf_free(&head);
        ef_strbuf_free(&tail);
        text += length + (text[length] == ' ');
    }
    ef_strbuf_puts(out, "</table>");
}

static void fold(ef_strbuf *out, const char *title, const char *text, bool open)
{
    ef_strbuf_printf(out, "<details%s><summary>%s</summary>", open ? " open" : "", title);
    element(out, "pre", text);
    ef_strbuf_puts(out, "</details>");
}

static void derivation(ef_strbuf *out, const ef_plan_region *r)
{
    if (r->equations == 0)
        return;
    ef_strbuf_printf(out,
                     "<details><summary>Derivation: %u equations</summary><p class=note>The implementation equals "
                     "the program by these, each an instance of one rule; equals may replace equals anywhere. "
                     "<code>equiforge explain</code> derives and checks them again.</p><ol class=proof>",
                     r->equations);
    for (uint32_t i = 0; i < r->equations; i++) {
        const ef_equation *e = &r->equation[i];
        ef_strbuf_puts(out, "<li>");
        element(out, "span class=rule", e->rule);
        ef_strbuf_puts(out, "<pre>");
        escape(out, e->before);
        ef_strbuf_puts(out, "\n= ");
        escape(out, e->after);
        ef_strbuf_puts(out, "</pre></li>");
    }
    ef_strbuf_puts(out, "</ol></details>");
}

static void region(ef_strbuf *out, const ef_plan *plan, uint32_t number)
{
    const ef_plan_region *r = &plan->region[number];
    ef_strbuf_printf(out, "<h2 id=region%u>Region %u</h2><p>", number, number);
    escape(out, r->device);
    ef_strbuf_puts(out, "</p>");
    roofline(out, r);
    fold(out, "Program", r->program, true);
    fold(out, r->original ? "Implementation: the program as it is" : "Implementation", r->candidate, true);
    derivation(out, r);
    ef_strbuf_puts(out, "<details><summary>Schedule</summary>");
    schedule(out, r->schedule);
    ef_strbuf_puts(out, "</details>");
    fold(out, "Code", r->source, false);
}

/* ---- the page ---- */

/* PyTorch runs it as it was given: its time is in no sum. */
static bool is_unmeasured(const ef_plan_region *r)
{
    return strcmp(r->language, "torch") == 0;
}

static void header(ef_strbuf *out, const ef_plan *plan)
{
    double original = 0, best = 0;
    uint32_t externals = 0;
    bool known = true;
    for (uint32_t i = 0; i < plan->steps; i++) {
        const ef_plan_step *s = &plan->step[i];
        externals += s->kind == EF_MS_EXTERNAL;
        if (s->kind == EF_MS_EXTERNAL)
            continue;
        const ef_plan_region *r = &plan->region[s->region];
        original += r->original_us;
        best += r->us;
        known = known && (r->original_us > 0 || is_unmeasured(r));
    }
    ef_strbuf_puts(out, "<!doctype html><html lang=en><meta charset=utf-8>"
                        "<meta name=viewport content=\"width=device-width\"><title>");
    escape(out, plan->name);
    ef_strbuf_printf(out, " – EquiForge</title><style>%s</style>", style);
    element(out, "h1", plan->name);
    ef_strbuf_puts(out, "<p>");
    escape(out, plan->target);
    if (known && original > 0)
        ef_strbuf_printf(out, ", %.1f us instead of %.1f us: <b>%.2f×</b>. ", best, original, ratio(original, best));
    else if (best > 0)
        ef_strbuf_printf(out, ", %.1f us (original not measured). ", best);
    else
        ef_strbuf_puts(out, ", not measured. ");
    ef_strbuf_printf(out, "Optimised in %.1f s by EquiForge ", plan->elapsed_s);
    escape(out, plan->version);
    ef_strbuf_printf(out, ". %u region%s, %u call%s that stay%s in PyTorch.</p>", plan->regions,
                     plan->regions == 1 ? "" : "s", externals, externals == 1 ? "" : "s", externals == 1 ? "s" : "");
}

bool ef_plan_report(const ef_plan *plan, const char *path, ef_diag *diag)
{
    ef_strbuf out = {0};
    header(&out, plan);
    summary(&out, plan);
    module(&out, plan);
    for (uint32_t i = 0; i < plan->regions; i++)
        region(&out, plan, i);
    ef_strbuf_puts(&out, "</html>\n");
    bool fine = ef_write_file(path, out.text, out.length, diag);
    ef_strbuf_free(&out);
    return fine;
}

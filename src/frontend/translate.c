/* The walk over an exported graph: see translate.h. */
#include "frontend/translate.h"

#include <string.h>

#include "frontend/aten.h"

/* Calls without results that only check what is known after export. */
static const char *const checks[] = {"aten._assert_tensor_metadata.default",
                                     "aten._assert_scalar.default",
                                     "aten._assert_async.msg",
                                     "aten._assert_async.default",
                                     "aten.sym_constrain_range.default",
                                     "aten.sym_constrain_range_for_size.default"};

/* In-place operators without a row in the tables whose functional form has the same overload. */
static const char *const functional_forms[] = {"index_put_", "index_add_",   "index_copy_",     "index_fill_",
                                               "scatter_",   "scatter_add_", "scatter_reduce_", "masked_scatter_",
                                               "cumsum_",    "cumprod_",     "round_",          "renorm_"};

/* Operators outside the tables whose results are views. */
static const char *const other_views[] = {"as_strided",  "diagonal",     "unfold", "view_as_real", "view_as_complex",
                                          "real",        "imag",         "conj",   "_conj",        "_neg_view",
                                          "unsafe_view", "tensor_split", "hsplit", "vsplit",       "dsplit"};

#define length_of(array) (sizeof(array) / sizeof *(array))

static bool is_aten(const char *target, const char *name)
{
    size_t length = strlen(name);
    return strncmp(target, "aten.", 5) == 0 && strncmp(target + 5, name, length) == 0 && target[5 + length] == '.';
}

static bool is_one_of(const char *target, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_aten(target, names[i]))
            return true;
    return false;
}

/* ---- values ---- */

/* Whether the IR can hold a value. */
static bool holds(const ef_xvalue *v)
{
    bool good = v->kind == EF_XV_TENSOR && v->strided && !v->symbolic && v->rank <= EF_MAX_RANK &&
                ef_aten_type(v->dtype) != EF_DTYPE_COUNT;
    for (uint32_t i = 0; good && i < v->rank; i++)
        good = v->size[i] > 0;
    return good;
}

static bool contiguous(const ef_xvalue *v)
{
    int64_t step = 1;
    for (uint32_t i = v->rank; i-- > 0;) {
        if (v->size[i] != 1 && v->stride[i] != step)
            return false;
        step *= v->size[i];
    }
    return true;
}

static void name_contents(ef_translation *l, ef_dn node, uint32_t value)
{
    while (l->named.count <= node)
        ef_vec_push(&l->named, EF_NONE);
    if (l->named.at[node] == EF_NONE)
        l->named.at[node] = value;
}

/* A value that comes from outside: an input of the module, or a result of an external call. */
static void define_outside(ef_translation *l, uint32_t value)
{
    const ef_xvalue *v = &l->exported->value[value];
    ef_dn node = holds(v) ? ef_dn_input(l->draft, value, ef_aten_type(v->dtype), v->size, v->rank) : EF_NONE;
    ef_contents_new(l, value, node);
    if (node != EF_NONE)
        name_contents(l, node, value);
}

/* The tensors that an argument holds, one by one. */
static uint32_t tensors_of(const ef_xarg *arg, const uint32_t **values)
{
    switch (arg->kind) {
    case EF_XA_TENSOR:
    case EF_XA_SYM: *values = &arg->value; return 1;
    case EF_XA_TENSORS:
    case EF_XA_OPTIONAL_TENSORS:
    case EF_XA_SYM_INTS: *values = arg->values; return arg->count;
    default: return 0;
    }
}

static uint32_t count_tensors(const ef_xarg *arg, uint32_t count)
{
    const uint32_t *values;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += tensors_of(&arg[i], &values);
    return n;
}

/* ---- translation one node ---- */

static ef_dn read_value(void *user, uint32_t value)
{
    return ef_contents_read(user, value);
}

/* Arguments that are known, and tensors that the IR can hold; a reason otherwise. */
static const char *arguments_fit(ef_translation *l, const ef_xnode *node)
{
    for (uint32_t i = 0; i < node->args; i++) {
        const uint32_t *values;
        uint32_t n = tensors_of(&node->arg[i], &values);
        if (node->arg[i].kind == EF_XA_SYM || node->arg[i].kind == EF_XA_SYM_INTS)
            return "a number that is only known at run time";
        for (uint32_t k = 0; k < n; k++)
            if (values[k] != EF_NONE && ef_contents_read(l, values[k]) == EF_NONE)
                return "a type or shape of an operand that the IR does not have";
    }
    return NULL;
}

/* Compares result k with what the exporter noted, and gives it its type. */
static const char *check_result(ef_aten *c, uint32_t k)
{
    const ef_xvalue *v = &c->exported->value[c->value[k]];
    int64_t size[EF_MAX_RANK];
    if (c->result[k] == EF_NONE)
        return "a result that the IR does not have";
    ef_dtype is = ef_aten_dtype(c, c->result[k]), wanted = ef_aten_type(v->dtype);
    if (is != EF_NUM && ef_dtype_is_float(is) != ef_dtype_is_float(wanted))
        return "a result of another type than the exporter noted";
    c->result[k] = ef_dn_known(c->draft, ef_dn_cast(c->draft, wanted, c->result[k]));
    unsigned rank = ef_aten_sizes(c, c->result[k], size);
    if (c->result[k] == EF_NONE || rank != v->rank || memcmp(size, v->size, rank * sizeof *size) != 0)
        return "a result of another shape than the exporter noted";
    return NULL;
}

const char *ef_translate_node(ef_translation *l, uint32_t node, uint32_t *results, uint32_t **value, ef_dn **result)
{
    const ef_xnode *n = &l->exported->node[node];
    const ef_aten_row *row = ef_aten_find(n->target);
    uint32_t count = count_tensors(n->output, n->outputs), at = 0;
    ef_aten c = {.draft = l->draft, .exported = l->exported, .node = n, .read = read_value, .user = l};
    if (!row)
        return "no translation";
    c.value = *value = ef_arena_alloc(l->arena, count * sizeof *c.value);
    c.result = *result = ef_arena_alloc(l->arena, count * sizeof *c.result);
    c.results = *results = count;
    for (uint32_t i = 0; i < n->outputs; i++) {
        const uint32_t *values;
        uint32_t more = tensors_of(&n->output[i], &values);
        for (uint32_t k = 0; k < more; k++, at++) {
            c.value[at] = values[k] != EF_NONE && l->used[values[k]] ? values[k] : EF_NONE;
            c.result[at] = EF_NONE;
            if (c.value[at] != EF_NONE && !holds(&l->exported->value[values[k]]))
                return "a type or shape of its result that the IR does not have";
        }
    }
    const char *reason = arguments_fit(l, n);
    if (reason)
        return reason;
    if (!row->lower(&c, row->param))
        return c.reason ? c.reason : "no translation of these arguments";
    for (uint32_t k = 0; k < count && !reason; k++)
        reason = c.value[k] == EF_NONE ? NULL : check_result(&c, k);
    return reason;
}

/* ---- external calls ---- */

static void make_call(ef_translation *l, const ef_xnode *n, bool functional, const char *reason)
{
    ef_call call = {.node = n, .functional = functional, .reason = reason};
    ef_ref *arg = ef_arena_alloc(l->arena, count_tensors(n->arg, n->args) * sizeof *arg);
    for (uint32_t i = 0; i < n->args; i++) {
        const uint32_t *values;
        uint32_t count = tensors_of(&n->arg[i], &values);
        for (uint32_t k = 0; k < count; k++)
            if (values[k] != EF_NONE)
                arg[call.args++] = (ef_ref){values[k], l->lower ? ef_contents_read(l, values[k]) : EF_NONE};
    }
    call.arg = arg;
    ef_vec_push(&l->calls, call);
    for (uint32_t i = 0; i < n->outputs; i++) {
        const uint32_t *values;
        uint32_t count = tensors_of(&n->output[i], &values);
        for (uint32_t k = 0; k < count; k++)
            if (values[k] != EF_NONE) {
                l->caller[values[k]] = l->calls.count - 1;
                define_outside(l, values[k]);
            }
    }
}

static uint32_t first_argument(const ef_xnode *n)
{
    return n->args && n->arg[0].kind == EF_XA_TENSOR ? n->arg[0].value : EF_NONE;
}

/* The results of a call are views of its first argument: nobody can follow a write to that memory. */
static void share_memory(ef_translation *l, const ef_xnode *n)
{
    uint32_t from = first_argument(n);
    if (from == EF_NONE)
        return;
    uint32_t storage = l->contents[from].storage;
    l->storages.at[storage].opaque = true;
    for (uint32_t i = 0; i < n->outputs; i++) {
        const uint32_t *values;
        uint32_t count = tensors_of(&n->output[i], &values);
        for (uint32_t k = 0; k < count; k++)
            if (values[k] != EF_NONE) {
                l->contents[values[k]].storage = storage;
                l->contents[values[k]].version = l->storages.at[storage].version;
            }
    }
}

/* What a call's submodules return may be views of what they are given: as share_memory, but of any argument. */
static void share_all_memory(ef_translation *l, const ef_call *call)
{
    for (uint32_t i = 0; i < call->args; i++)
        l->storages.at[l->contents[call->arg[i].value].storage].opaque = true;
    for (uint32_t v = 0; v < l->exported->values; v++)
        if (l->caller[v] == l->calls.count - 1)
            l->storages.at[l->contents[v].storage].opaque = true;
}

/* Whether the call runs submodules; they may write to what they are given. */
static bool runs_graphs(const ef_xnode *n, bool *write)
{
    bool any = false;
    *write = false;
    for (uint32_t i = 0; i < n->args; i++) {
        any = any || n->arg[i].kind == EF_XA_GRAPH;
        *write = *write || (n->arg[i].kind == EF_XA_GRAPH && n->arg[i].boolean);
    }
    return any;
}

static void call_outside(ef_translation *l, const ef_xnode *n, const char *reason)
{
    bool write, graphs = runs_graphs(n, &write);
    const ef_aten_row *row = ef_aten_find(n->target);
    bool functional = is_one_of(n->target, functional_forms, length_of(functional_forms));
    uint32_t target = first_argument(n);
    if (l->lower && ef_xnode_in_place(n) && !functional && !(row && row->alias == EF_FRESH)) {
        l->lost = "it writes to its arguments in a way that is not known";
        return;
    }
    if (l->lower && write) {
        l->lost = "a submodule writes to its arguments";
        return;
    }
    if (l->lower && n->outputs == 0) {
        l->lost = "an operator without results may write to its arguments";
        return;
    }
    functional = l->lower && ef_xnode_in_place(n);
    make_call(l, n, functional, graphs && l->lower ? "submodules stay in PyTorch" : reason);
    if (graphs)
        share_all_memory(l, &l->calls.at[l->calls.count - 1]);
    if (is_one_of(n->target, other_views, length_of(other_views)) || (row && row->alias != EF_FRESH))
        share_memory(l, n);
    if (!functional)
        return;
    if (target == EF_NONE || n->outputs != 1 || n->output[0].kind != EF_XA_TENSOR) {
        l->lost = "it writes to its arguments in a way that is not known";
        return;
    }
    uint32_t out = n->output[0].value;
    if (ef_contents_write(l, target, l->contents[out].node))
        ef_contents_view(l, out, l->contents[out].node, target, EF_NONE);
}

/* ---- the walk ---- */

/* Whether results share memory with the first argument. */
static bool is_view(const ef_translation *l, const ef_xnode *n, ef_alias alias)
{
    uint32_t from = first_argument(n),
             to = n->outputs && n->output[0].kind == EF_XA_TENSOR ? n->output[0].value : EF_NONE;
    if (alias == EF_FRESH || from == EF_NONE)
        return false;
    const ef_xvalue *a = &l->exported->value[from], *b = to == EF_NONE ? NULL : &l->exported->value[to];
    if (alias == EF_SAME)
        return b && a->dtype == b->dtype;
    return alias == EF_SHARED || contiguous(a);
}

static void lower_or_call(ef_translation *l, uint32_t node)
{
    const ef_xnode *n = &l->exported->node[node];
    const ef_aten_row *row = ef_aten_find(n->target);
    uint32_t results, *value, target = first_argument(n);
    ef_dn *result;
    const char *reason = l->lower ? ef_translate_node(l, node, &results, &value, &result) : "nothing is translated";
    if (reason) {
        call_outside(l, n, reason);
        return;
    }
    if (ef_xnode_in_place(n)) {
        if (results != 1 || target == EF_NONE || row->alias == EF_SHARED) { /* unsqueeze_: the shape itself changes */
            l->lost = "it writes to its arguments in a way that is not known";
        } else if (ef_contents_write(l, target, result[0])) {
            ef_contents_view(l, value[0], result[0], target, EF_NONE);
            name_contents(l, result[0], value[0]);
        }
        return;
    }
    for (uint32_t k = 0; k < results; k++) {
        if (value[k] == EF_NONE)
            continue;
        if (is_view(l, n, row->alias))
            ef_contents_view(l, value[k], result[k], target, node);
        else
            ef_contents_new(l, value[k], result[k]);
        name_contents(l, result[k], value[k]);
    }
}

static bool is_check(const ef_xnode *n)
{
    for (size_t i = 0; n->outputs == 0 && i < length_of(checks); i++)
        if (strcmp(n->target, checks[i]) == 0)
            return true;
    return false;
}

/* A tensor that leaves the module as it came, though the module made a copy of it: so does the copy. */
static ef_ref leave(ef_translation *l, uint32_t value)
{
    ef_ref ref = {value, l->lower ? ef_contents_read(l, value) : EF_NONE};
    const ef_dnode *node = ref.node == EF_NONE ? NULL : &l->draft->nodes.at[ref.node];
    if (!node || node->op != EF_INPUT || l->caller[node->attr] != EF_NONE)
        return ref;
    if (l->contents[value].storage == l->contents[node->attr].storage ||
        l->exported->value[value].dtype != l->exported->value[node->attr].dtype)
        return ref; /* it is the input; or a region makes another type of it */
    ef_ref *arg = ef_arena_alloc(l->arena, sizeof *arg);
    *arg = ref;
    ef_call call = {.args = 1, .arg = arg, .copy = l->copies++, .reason = "a copy of an input"};
    ef_vec_push(&l->calls, call);
    return (ef_ref){ef_copy_value(l, call.copy), EF_NONE};
}

/* Writes to inputs, and results. */
static void finish(ef_translation *l)
{
    const ef_exported *x = l->exported;
    for (uint32_t i = 0; l->lower && i < x->inputs; i++) {
        uint32_t value = x->input[i].value;
        if (value == EF_NONE || l->contents[value].node == EF_NONE)
            continue;
        ef_dn now = ef_contents_read(l, value);
        const ef_dnode *node = &l->draft->nodes.at[now];
        if (!(node->op == EF_INPUT && node->attr == value))
            ef_vec_push(&l->mutated, ((ef_ref){value, now}));
    }
    l->output = ef_arena_alloc(l->arena, x->outputs * sizeof *l->output);
    for (uint32_t i = 0; i < x->outputs; i++)
        l->output[i] = x->output[i].value == EF_NONE ? (ef_ref){EF_NONE, EF_NONE} : leave(l, x->output[i].value);
}

static void find_used(ef_translation *l)
{
    const ef_exported *x = l->exported;
    for (uint32_t i = 0; i < x->nodes; i++)
        for (uint32_t a = 0; a < x->node[i].args; a++) {
            const uint32_t *values;
            uint32_t count = tensors_of(&x->node[i].arg[a], &values);
            for (uint32_t k = 0; k < count; k++)
                if (values[k] != EF_NONE)
                    l->used[values[k]] = true;
        }
    for (uint32_t i = 0; i < x->outputs; i++)
        if (x->output[i].value != EF_NONE)
            l->used[x->output[i].value] = true;
    for (uint32_t i = 0; i < x->nodes; i++) /* what an operator writes to is its result too */
        if (ef_xnode_in_place(&x->node[i]) && x->node[i].outputs == 1 && x->node[i].output[0].kind == EF_XA_TENSOR)
            l->used[x->node[i].output[0].value] = true;
}

static ef_translation *begin(const ef_exported *x, bool lower)
{
    ef_arena *arena = ef_arena_new();
    ef_translation *l = ef_arena_alloc(arena, sizeof *l);
    *l = (ef_translation){.exported = x, .arena = arena, .lower = lower, .standing_in = EF_NONE};
    l->draft = ef_draft_new();
    l->contents = ef_arena_alloc(arena, x->values * sizeof *l->contents);
    l->caller = ef_arena_alloc(arena, x->values * sizeof *l->caller);
    for (uint32_t i = 0; i < x->values; i++) {
        l->caller[i] = EF_NONE;
        l->contents[i] = (ef_contents){EF_NONE, EF_NONE, EF_NONE, EF_NONE, 0};
    }
    l->used = ef_arena_alloc(arena, x->values * sizeof *l->used);
    find_used(l);
    return l;
}

static ef_translation *walk(const ef_exported *x, bool lower)
{
    ef_translation *l = begin(x, lower);
    for (uint32_t i = 0; i < x->inputs; i++)
        if (x->input[i].value != EF_NONE)
            define_outside(l, x->input[i].value);
    for (uint32_t i = 0; i < x->nodes && !l->lost; i++)
        if (!is_check(&x->node[i]))
            lower_or_call(l, i);
    if (!l->lost)
        finish(l);
    return l;
}

ef_translation *ef_translate(const ef_exported *exported)
{
    ef_translation *l = walk(exported, true);
    if (!l->lost)
        return l;
    const char *lost = l->lost;
    ef_translation_free(l);
    l = walk(exported, false);
    for (uint32_t i = 0; i < l->calls.count; i++)
        l->calls.at[i].reason = lost;
    return l;
}

void ef_translation_free(ef_translation *l)
{
    if (!l)
        return;
    ef_draft_free(l->draft);
    ef_vec_free(&l->storages);
    ef_vec_free(&l->calls);
    ef_vec_free(&l->named);
    ef_vec_free(&l->mutated);
    ef_arena_free(l->arena);
}

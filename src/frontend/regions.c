/* Cutting a translated graph into regions and external calls: see regions.h. */
#include "frontend/regions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontend/aten.h"
#include "frontend/external.h"

/* What a region must hand out. */
typedef struct {
    ef_dn node;
    ef_dtype dtype;
} export;

typedef EF_VEC(export) export_list;

typedef struct {
    ef_module *module;
    ef_translation *l;
    ef_draft *draft;
    ef_arena *arena;
    ef_diag *diag;
    uint32_t *stage;      /* by draft node */
    bool *portable;       /* by draft node: computed in every region that needs it */
    bool *live;           /* by draft node */
    uint32_t *call_stage; /* by call */
    bool *call_live;
    uint32_t stages;
    export_list *exports; /* by stage */
    uint32_t *value_of;   /* by value of the exported program, and then by copy: the module's; EF_NONE */
    ef_intern *computed;  /* export -> index into computed_value */
    EF_VEC(uint32_t) computed_value;
    ef_intern *names;
    EF_VEC(ef_mvalue) values;
    EF_VEC(ef_mstep) steps;
    EF_VEC(ef_dn) todo;
} planner;

static const ef_dnode *node_at(const planner *p, ef_dn node)
{
    return &p->draft->nodes.at[node];
}

/* The value that a node stands for as it is, EF_NONE when the node is computed. */
static uint32_t given_value(const planner *p, ef_dn node)
{
    return node_at(p, node)->op == EF_INPUT ? (uint32_t)node_at(p, node)->attr : EF_NONE;
}

/* The same for a reference, whose value may have another type than what the node stands for. */
static uint32_t given(const planner *p, ef_ref ref)
{
    uint32_t value = ref.node == EF_NONE ? ref.value : given_value(p, ref.node);
    const ef_xvalue *all = p->l->exported->value;
    return ref.node != EF_NONE && value != EF_NONE && all[value].dtype != all[ref.value].dtype ? EF_NONE : value;
}

/* ---- stages ---- */

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The stage of what a call made, or 0 for an input of the module. */
static uint32_t value_stage(const planner *p, uint32_t value)
{
    uint32_t call = p->l->caller[value];
    return call == EF_NONE ? 0 : p->call_stage[call];
}

/* A call runs before the region of its own stage, and after the one that computes an argument. */
static uint32_t stage_of_call(const planner *p, const ef_call *call)
{
    uint32_t stage = 0;
    for (uint32_t i = 0; i < call->args; i++) {
        uint32_t value = given(p, call->arg[i]);
        stage = most(stage, value == EF_NONE ? p->stage[call->arg[i].node] + 1 : value_stage(p, value));
    }
    return stage;
}

static bool is_view(ef_op op)
{
    return op == EF_RESHAPE || op == EF_TRANSPOSE || op == EF_SLICE || op == EF_BROADCAST;
}

/* Nodes and calls in the order in which they were made: each needs only earlier ones. */
static void find_stages(planner *p)
{
    uint32_t call = 0;
    for (ef_dn i = 0; i < p->draft->nodes.count; i++) {
        const ef_dnode *n = node_at(p, i);
        if (n->op == EF_INPUT) {
            uint32_t value = n->attr < p->l->exported->values ? (uint32_t)n->attr : EF_NONE;
            uint32_t caller = value == EF_NONE ? EF_NONE : p->l->caller[value];
            for (; caller != EF_NONE && call <= caller; call++)
                p->call_stage[call] = stage_of_call(p, &p->l->calls.at[call]);
            p->stage[i] = value == EF_NONE ? 0 : value_stage(p, value);
            p->portable[i] = true;
            continue;
        }
        for (unsigned k = 0; k < n->count; k++)
            p->stage[i] = most(p->stage[i], p->stage[n->child[k]]);
        p->portable[i] = n->made || (is_view((ef_op)n->op) && p->portable[n->child[0]]);
    }
    for (; call < p->l->calls.count; call++)
        p->call_stage[call] = stage_of_call(p, &p->l->calls.at[call]);
    for (ef_dn i = 0; i < p->draft->nodes.count; i++)
        p->stages = most(p->stages, p->stage[i] + 1);
    for (uint32_t i = 0; i < p->l->calls.count; i++)
        p->stages = most(p->stages, p->call_stage[i] + 1);
}

/* ---- what is needed ---- */

static void need_call(planner *p, uint32_t call);

static void need(planner *p, ef_ref ref)
{
    if (ref.node == EF_NONE) {
        if (ref.value < p->l->exported->values && p->l->caller[ref.value] != EF_NONE)
            need_call(p, p->l->caller[ref.value]);
    } else if (!p->live[ref.node]) {
        p->live[ref.node] = true;
        ef_vec_push(&p->todo, ref.node);
    }
}

/* Calls nest through their arguments only as deep as the list of nodes to do is not: arguments are put on it. */
static void need_call(planner *p, uint32_t call)
{
    if (p->call_live[call])
        return;
    p->call_live[call] = true;
    for (uint32_t i = 0; i < p->l->calls.at[call].args; i++)
        need(p, p->l->calls.at[call].arg[i]);
}

/* Operators of PyTorch, and Python's on numbers that the data decide, which only checks may have needed. */
static bool is_pure(const char *target)
{
    return strncmp(target, "aten.", 5) == 0 || strncmp(target, "_operator.", 10) == 0 ||
           strncmp(target, "torch.sym_", 10) == 0;
}

static void find_live(planner *p)
{
    const ef_exported *x = p->l->exported;
    for (uint32_t i = 0; i < x->outputs; i++)
        if (p->l->output[i].value != EF_NONE)
            need(p, p->l->output[i]);
    for (uint32_t i = 0; i < p->l->mutated.count; i++)
        need(p, (ef_ref){EF_NONE, p->l->mutated.at[i].node});
    for (uint32_t i = 0; i < p->l->calls.count; i++) {
        const ef_call *call = &p->l->calls.at[i];
        if (!call->node || !p->l->lower || call->node->outputs == 0 || !is_pure(call->node->target))
            need_call(p, i); /* copies; and what may do more than return a result */
    }
    while (p->todo.count) {
        ef_dn node = p->todo.at[--p->todo.count];
        const ef_dnode *n = node_at(p, node);
        uint32_t value = given_value(p, node);
        if (value != EF_NONE && value < x->values && p->l->caller[value] != EF_NONE)
            need_call(p, p->l->caller[value]);
        for (unsigned k = 0; k < n->count; k++)
            need(p, (ef_ref){EF_NONE, n->child[k]});
    }
}

/* The type in which contents leave a region: that of the value which had them first; else float for what is real. */
static ef_dtype stored_type(const planner *p, ef_dn node)
{
    uint32_t value = node < p->l->named.count ? p->l->named.at[node] : EF_NONE;
    ef_dtype own = (ef_dtype)node_at(p, node)->dtype;
    if (value != EF_NONE)
        return ef_aten_type(p->l->exported->value[value].dtype);
    return own == EF_NUM || own == EF_F16 || own == EF_BF16 ? EF_F32 : own;
}

static void hand_out(planner *p, ef_dn node, ef_dtype dtype)
{
    export_list *list = &p->exports[p->stage[node]];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->at[i].node == node && list->at[i].dtype == dtype)
            return;
    ef_vec_push(list, ((export){node, dtype}));
}

static void hand_out_ref(planner *p, ef_ref ref)
{
    if (given(p, ref) == EF_NONE)
        hand_out(p, ref.node, ef_aten_type(p->l->exported->value[ref.value].dtype));
}

static void find_exports(planner *p)
{
    for (uint32_t i = 0; i < p->l->exported->outputs; i++)
        if (p->l->output[i].value != EF_NONE)
            hand_out_ref(p, p->l->output[i]);
    for (uint32_t i = 0; i < p->l->mutated.count; i++)
        hand_out_ref(p, p->l->mutated.at[i]);
    for (uint32_t i = 0; i < p->l->calls.count; i++)
        for (uint32_t k = 0; p->call_live[i] && k < p->l->calls.at[i].args; k++)
            hand_out_ref(p, p->l->calls.at[i].arg[k]);
}

/* Computes everything as late as it can be: beside what uses it, not beside what it is made of. What a call needs is
 * needed in its own stage already, so that no region is added. */
static void postpone(planner *p)
{
    for (ef_dn i = 0; i < p->draft->nodes.count; i++)
        if (node_at(p, i)->op != EF_INPUT)
            p->stage[i] = p->stages - 1;
    for (uint32_t i = 0; i < p->l->calls.count; i++) {
        const ef_call *call = &p->l->calls.at[i];
        for (uint32_t k = 0; p->call_live[i] && k < call->args; k++)
            if (given(p, call->arg[k]) == EF_NONE && p->call_stage[i] - 1 < p->stage[call->arg[k].node])
                p->stage[call->arg[k].node] = p->call_stage[i] - 1;
    }
    for (ef_dn i = p->draft->nodes.count; i-- > 0;)
        for (unsigned k = 0; p->live[i] && k < node_at(p, i)->count; k++) {
            ef_dn child = node_at(p, i)->child[k];
            if (node_at(p, child)->op != EF_INPUT && p->stage[i] < p->stage[child])
                p->stage[child] = p->stage[i];
        }
}

/* ---- values of the module ---- */

static uint32_t add_value(planner *p, const char *name, ef_mvalue_kind kind, const ef_xvalue *like, ef_dtype dtype)
{
    ef_mvalue v = {.kind = kind, .source = EF_NONE, .dtype = dtype, .torch_dtype = ef_torch_dtype(dtype)};
    v.name = ef_fresh_name(p->arena, p->names, name);
    if (like && like->kind == EF_XV_TENSOR) {
        v.rank = like->rank;
        v.size = like->size;
        if (dtype == EF_DTYPE_COUNT)
            v.torch_dtype = ef_xscalars[like->dtype].name;
    }
    ef_vec_push(&p->values, v);
    return p->values.count - 1;
}

static uint32_t add_exported(planner *p, uint32_t value, ef_mvalue_kind kind)
{
    const ef_xvalue *v = &p->l->exported->value[value];
    ef_dtype dtype = v->kind == EF_XV_TENSOR ? ef_aten_type(v->dtype) : EF_DTYPE_COUNT;
    return p->value_of[value] = add_value(p, v->name, kind, v, dtype);
}

static bool add_inputs(planner *p)
{
    static const ef_mvalue_kind kinds[] = {
        [EF_XI_USER] = EF_MV_INPUT,
        [EF_XI_PARAMETER] = EF_MV_PARAMETER,
        [EF_XI_BUFFER] = EF_MV_BUFFER,
        [EF_XI_CONSTANT] = EF_MV_CONSTANT,
    };
    const ef_exported *x = p->l->exported;
    uint32_t position = 0;
    for (uint32_t i = 0; i < x->inputs; i++) {
        const ef_xinput *input = &x->input[i];
        if (input->kind == EF_XI_OTHER)
            return ef_fail(p->diag, "%s: the module needs an input that is no tensor (a custom object or token)",
                           x->name);
        if (input->value != EF_NONE) {
            uint32_t value = add_exported(p, input->value, kinds[input->kind]);
            ef_mvalue *v = &p->values.at[value];
            v->input = input->kind == EF_XI_USER ? position : 0;
            if (input->kind != EF_XI_USER) {
                v->target = input->target;
                v->entry = input->entry;
                v->source = i;
            }
        }
        position += input->kind == EF_XI_USER;
    }
    p->module->user_inputs = position;
    return true;
}

/* The value that a region makes of a node, in a type. */
static uint32_t computed_value(planner *p, ef_dn node, ef_dtype dtype)
{
    uint32_t key[2] = {node, dtype}, value = node < p->l->named.count ? p->l->named.at[node] : EF_NONE;
    int fresh;
    uint32_t id = ef_intern_put(p->computed, key, sizeof key, &fresh);
    if (!fresh)
        return p->computed_value.at[id];
    const ef_dnode *n = node_at(p, node);
    int64_t *size = ef_arena_alloc(p->arena, n->rank * sizeof *size);
    for (unsigned i = 0; i < n->rank; i++)
        size[i] = (int64_t)ef_dn_size(p->draft, node, n->rank - 1u - i);
    uint32_t made = add_value(p, value == EF_NONE ? "t" : p->l->exported->value[value].name, EF_MV_RESULT, NULL, dtype);
    p->values.at[made].rank = n->rank;
    p->values.at[made].size = size;
    ef_vec_push(&p->computed_value, made);
    return made;
}

static uint32_t value_of_ref(planner *p, ef_ref ref)
{
    uint32_t value = given(p, ref);
    if (value != EF_NONE)
        return p->value_of[value];
    return computed_value(p, ref.node, ef_aten_type(p->l->exported->value[ref.value].dtype));
}

/* ---- steps ---- */

/* The position of a value in a list, at whose end it is put when it is not there. */
static uint32_t position(uint32_t *list, uint32_t *count, uint32_t value)
{
    for (uint32_t i = 0; i < *count; i++)
        if (list[i] == value)
            return i;
    list[*count] = value;
    return (*count)++;
}

static void add_call(planner *p, uint32_t index)
{
    const ef_call *call = &p->l->calls.at[index];
    uint32_t *in = ef_arena_alloc(p->arena, call->args * sizeof *in),
             *order = ef_arena_alloc(p->arena, call->args * 4u);
    ef_mstep step = {
        .kind = EF_MS_EXTERNAL, .in = in, .reason = ef_arena_strndup(p->arena, call->reason, strlen(call->reason))};
    for (uint32_t i = 0; i < call->args; i++)
        order[i] = position(in, &step.ins, value_of_ref(p, call->arg[i]));
    if (!call->node) { /* a copy */
        uint32_t *out = ef_arena_alloc(p->arena, sizeof *out);
        const ef_mvalue from = p->values.at[in[0]];
        out[0] = add_value(p, from.name, EF_MV_RESULT, NULL, from.dtype);
        p->values.at[out[0]].rank = from.rank;
        p->values.at[out[0]].size = from.size;
        p->values.at[out[0]].step = p->steps.count;
        p->value_of[ef_copy_value(p->l, call->copy)] = out[0];
        step.outs = 1;
        step.out = out;
        step.target = "aten.clone.default";
        step.arguments = "{\"args\": [{\"tensor\": 0}], \"kwargs\": {}}";
        step.results = "{\"tensor\": 0}";
        ef_vec_push(&p->steps, step);
        return;
    }
    uint32_t count = 0, made = 0;
    for (uint32_t i = 0; i < call->node->outputs; i++)
        count += call->node->output[i].kind == EF_XA_TENSORS || call->node->output[i].kind == EF_XA_OPTIONAL_TENSORS
                     ? call->node->output[i].count
                     : 1;
    uint32_t *out = ef_arena_alloc(p->arena, count * sizeof *out), *back = ef_arena_alloc(p->arena, count * 4u);
    for (uint32_t v = 0; v < p->l->exported->values; v++) /* results have neighbouring numbers */
        if (p->l->caller[v] == index && made < count) {
            back[made] = made;
            out[made++] = add_exported(p, v, EF_MV_RESULT);
            p->values.at[out[made - 1]].step = p->steps.count;
        }
    step.outs = made;
    step.out = out;
    step.target = ef_external_target(p->arena, call);
    step.arguments = ef_external_arguments(p->arena, call->node, order);
    step.results = ef_external_results(p->arena, call->node, back);
    ef_vec_push(&p->steps, step);
}

/* The nodes that a region of this stage needs for its exports; what earlier regions compute is handed out by them. */
static void find_present(planner *p, uint32_t stage, uint8_t *presence)
{
    const export_list *list = &p->exports[stage];
    for (uint32_t i = 0; i < list->count; i++)
        ef_vec_push(&p->todo, list->at[i].node);
    while (p->todo.count) {
        ef_dn node = p->todo.at[--p->todo.count];
        const ef_dnode *n = node_at(p, node);
        if (presence[node] != EF_ABSENT)
            continue;
        bool earlier = !p->portable[node] && p->stage[node] < stage;
        presence[node] = n->op == EF_INPUT || earlier ? EF_GIVEN : EF_COMPUTED;
        if (earlier)
            hand_out(p, node, stored_type(p, node));
        for (unsigned k = 0; presence[node] == EF_COMPUTED && k < n->count; k++)
            ef_vec_push(&p->todo, n->child[k]);
    }
}

static bool add_region(planner *p, uint32_t stage, const uint8_t *presence)
{
    const export_list *list = &p->exports[stage];
    uint32_t nodes = p->draft->nodes.count, ins = 0;
    for (ef_dn i = 0; i < nodes; i++)
        ins += presence[i] == EF_GIVEN;
    ef_dn *input = ef_arena_alloc(p->arena, ins * sizeof *input), *output = ef_arena_alloc(p->arena, list->count * 4u);
    uint32_t *in = ef_arena_alloc(p->arena, ins * sizeof *in), *out = ef_arena_alloc(p->arena, list->count * 4u);
    const char **in_name = ef_arena_alloc(p->arena, ins * sizeof *in_name);
    const char **out_name = ef_arena_alloc(p->arena, list->count * sizeof *out_name);
    ef_dtype *in_type = ef_arena_alloc(p->arena, ins * sizeof *in_type);
    ef_dtype *out_type = ef_arena_alloc(p->arena, list->count * sizeof *out_type);
    uint32_t n = 0;
    for (ef_dn i = 0; i < nodes; i++) {
        if (presence[i] != EF_GIVEN)
            continue;
        uint32_t value = given_value(p, i);
        in[n] = value == EF_NONE ? computed_value(p, i, stored_type(p, i)) : p->value_of[value];
        in_name[n] = p->values.at[in[n]].name;
        in_type[n] = p->values.at[in[n]].dtype;
        input[n++] = i;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        output[i] = list->at[i].node;
        out[i] = computed_value(p, output[i], list->at[i].dtype);
        p->values.at[out[i]].step = p->steps.count;
        out_name[i] = p->values.at[out[i]].name;
        out_type[i] = list->at[i].dtype;
    }
    char name[300];
    snprintf(name, sizeof name, "%.240s_%" PRIu32, p->module->name, p->module->regions++);
    ef_region region = {presence,
                        ins,
                        list->count,
                        input,
                        output,
                        in_name,
                        (const char *const *)out_name,
                        in_type,
                        out_type,
                        p->stages == 1 ? p->module->name : name};
    ef_mstep step = {.kind = EF_MS_REGION, .ins = ins, .outs = list->count, .in = in, .out = out};
    step.program = ef_region_emit(p->module, p->l, &region, p->diag);
    ef_vec_push(&p->steps, step);
    return step.program != NULL;
}

/* Regions are looked at from the last to the first, because a later one says what an earlier one must hand out. */
static bool add_steps(planner *p)
{
    uint32_t nodes = p->draft->nodes.count;
    uint8_t **presence = ef_arena_alloc(p->arena, p->stages * sizeof *presence);
    for (uint32_t s = p->stages; s-- > 0;) {
        presence[s] = ef_arena_alloc(p->arena, nodes);
        find_present(p, s, presence[s]);
    }
    for (uint32_t s = 0; s < p->stages; s++) {
        for (uint32_t i = 0; i < p->l->calls.count; i++)
            if (p->call_live[i] && p->call_stage[i] == s)
                add_call(p, i);
        if (p->exports[s].count && !add_region(p, s, presence[s]))
            return false;
    }
    return true;
}

/* ---- results ---- */

static uint32_t find_target(const planner *p, const ef_xoutput *output)
{
    const ef_exported *x = p->l->exported;
    for (uint32_t i = 0; i < x->inputs; i++) {
        const ef_xinput *input = &x->input[i];
        if (input->value == EF_NONE)
            continue;
        const char *name = output->kind == EF_XO_INPUT_MUTATION ? x->value[input->value].name : input->target;
        ef_xinput_kind kind = output->kind == EF_XO_INPUT_MUTATION    ? EF_XI_USER
                              : output->kind == EF_XO_BUFFER_MUTATION ? EF_XI_BUFFER
                                                                      : EF_XI_PARAMETER;
        if (input->kind == kind && strcmp(name, output->target) == 0)
            return p->value_of[input->value];
    }
    return EF_NONE;
}

static void add_results(planner *p)
{
    const ef_exported *x = p->l->exported;
    ef_module *m = p->module;
    ef_moutput *output = ef_arena_alloc(p->arena, x->outputs * sizeof *output);
    ef_mmutation *mutation = ef_arena_alloc(p->arena, (x->outputs + p->l->mutated.count) * sizeof *mutation);
    for (uint32_t i = 0; i < x->outputs; i++) {
        const ef_xoutput *o = &x->output[i];
        bool result = o->kind == EF_XO_USER || o->kind == EF_XO_LOSS, none = p->l->output[i].value == EF_NONE;
        uint32_t value = none ? EF_NONE : value_of_ref(p, p->l->output[i]),
                 target = result ? EF_NONE : find_target(p, o);
        if (result)
            output[m->outputs++] = (ef_moutput){value, none ? ef_external_literal(p->arena, &o->literal) : NULL};
        else if (value != EF_NONE && target != EF_NONE && value != target)
            mutation[m->mutations++] = (ef_mmutation){value, target};
    }
    for (uint32_t i = 0; i < p->l->mutated.count; i++)
        mutation[m->mutations++] =
            (ef_mmutation){value_of_ref(p, p->l->mutated.at[i]), p->value_of[p->l->mutated.at[i].value]};
    m->output = output;
    m->mutation = mutation;
    m->value = ef_arena_alloc(p->arena, p->values.count * sizeof *p->values.at);
    m->values = p->values.count;
    m->step = ef_arena_alloc(p->arena, p->steps.count * sizeof *p->steps.at);
    m->steps = p->steps.count;
    if (m->values)
        memcpy((void *)m->value, p->values.at, p->values.count * sizeof *p->values.at);
    if (m->steps)
        memcpy((void *)m->step, p->steps.at, p->steps.count * sizeof *p->steps.at);
}

static void planner_init(planner *p)
{
    uint32_t nodes = p->draft->nodes.count, calls = p->l->calls.count, values = p->l->exported->values + p->l->copies;
    p->stage = ef_arena_alloc(p->arena, nodes * sizeof *p->stage);
    p->portable = ef_arena_alloc(p->arena, nodes * sizeof *p->portable);
    p->live = ef_arena_alloc(p->arena, nodes * sizeof *p->live);
    p->call_stage = ef_arena_alloc(p->arena, calls * sizeof *p->call_stage);
    p->call_live = ef_arena_alloc(p->arena, calls * sizeof *p->call_live);
    p->value_of = ef_arena_alloc(p->arena, values * sizeof *p->value_of);
    memset(p->value_of, 0xff, values * sizeof *p->value_of);
    p->computed = ef_intern_new();
    p->names = ef_intern_new();
}

bool ef_regions_plan(ef_module *module, ef_translation *l, ef_diag *diag)
{
    planner p = {.module = module, .l = l, .draft = l->draft, .arena = module->store->arena, .diag = diag};
    planner_init(&p);
    find_stages(&p);
    p.exports = ef_arena_alloc(p.arena, (p.stages + 1) * sizeof *p.exports);
    find_live(&p);
    postpone(&p);
    find_exports(&p);
    bool good = add_inputs(&p) && add_steps(&p);
    if (good)
        add_results(&p);
    for (uint32_t i = 0; i < p.stages; i++)
        ef_vec_free(&p.exports[i]);
    ef_vec_free(&p.computed_value);
    ef_vec_free(&p.values);
    ef_vec_free(&p.steps);
    ef_vec_free(&p.todo);
    ef_intern_free(p.computed);
    ef_intern_free(p.names);
    return good;
}

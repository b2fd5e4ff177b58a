/* From a part of a draft to a typed program: slots become dimensions, nodes expressions.
 *
 * A leaf of the slots becomes a variable d0, d1, … in the order in which they are met, except that twins become twins,
 * and that what a slice or concatenation made and nothing else was unified with keeps the name that the operator gives
 * it (k[0:64]). Where an operator's own name differs from the slot's, a reshape renames its result. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontend/regions.h"
#include "ir/twin.h"

#define READABLE 64u          /* bytes of a derived dimension's name */
#define PENDING (EF_NONE - 1) /* in place of a dimension that is being resolved */

typedef struct {
    ef_translation *l;
    ef_draft *draft;
    const ef_region *region;
    ef_ctx *ctx;
    ef_dag *dag;
    ef_diag *diag;
    ef_dim *dim;    /* by slot: EF_NONE until known */
    ef_dn *made_by; /* by slot: the slice or concatenation in this region that made it, EF_NONE */
    ef_expr *expr;  /* by draft node */
    uint32_t vars;
} emitter;

/* ---- dimensions ---- */

static ef_dim resolve(emitter *e, ef_slot slot);

static ef_dim new_variable(emitter *e, uint64_t size)
{
    char name[16];
    int length = snprintf(name, sizeof name, "d%" PRIu32, e->vars++);
    ef_var var = ef_var_named(e->ctx, name, (unsigned)length, size, e->diag);
    return var == EF_NONE ? EF_UNIT : ef_dim_of_var(e->ctx, var);
}

/* The dimension that an operator names by itself. */
static ef_dim derived(emitter *e, ef_dn node)
{
    const ef_dnode *n = &e->draft->nodes.at[node];
    ef_dim part[EF_MAX_FIELDS] = {EF_UNIT}, dim;
    unsigned index = n->op == EF_SLICE ? ef_slice_index(n->attr) : (unsigned)n->attr;
    for (unsigned i = 0; i < n->count; i++)
        part[i] = resolve(e, e->draft->nodes.at[n->child[i]].dim[index]);
    dim = n->op == EF_SLICE ? ef_dim_slice(e->ctx, part[0], ef_slice_start(n->attr), ef_slice_stop(n->attr))
                            : ef_dim_concat(e->ctx, part, n->count);
    ef_strbuf text = {0};
    ef_dim_print(e->ctx, dim, &text);
    bool readable = text.length <= READABLE;
    ef_strbuf_free(&text);
    return readable ? dim : EF_NONE;
}

/* Each leaf that is a twin of one dimension takes another number of primes. */
static ef_dim twin(emitter *e, ef_slot leaf)
{
    ef_dim dim = resolve(e, ef_slot_twin_of(e->draft->slots, leaf));
    for (unsigned tries = 0; tries < EF_MAX_RANK && dim != EF_NONE; tries++) {
        dim = ef_dim_twin(e->ctx, dim);
        bool taken = false;
        for (uint32_t i = 0; dim != EF_NONE && i < ef_slots_count(e->draft->slots) && !taken; i++)
            taken = e->dim[i] == dim;
        if (!taken)
            return dim;
    }
    return EF_NONE;
}

static ef_dim resolve_leaf(emitter *e, ef_slot leaf)
{
    ef_dim dim = EF_NONE;
    if (ef_slot_members(e->draft->slots, leaf) == 1 && e->made_by[leaf] != EF_NONE)
        dim = derived(e, e->made_by[leaf]);
    else if (ef_slot_twin_of(e->draft->slots, leaf) != EF_SLOT_UNIT)
        dim = twin(e, leaf);
    return dim == EF_NONE ? new_variable(e, ef_slot_size(e->draft->slots, leaf)) : dim;
}

/* Names may refer to each other in a circle (a twin of a slice of what joins the twin with something): what is met
 * again while it is being resolved gets a name of its own. */
static ef_dim resolve(emitter *e, ef_slot slot)
{
    ef_slot leaf[EF_SLOT_LEAVES], root = ef_slot_find(e->draft->slots, slot);
    ef_var atoms[EF_MAX_ATOMS];
    unsigned count = 0;
    if (root == EF_SLOT_UNIT)
        return EF_UNIT;
    if (e->dim[root] == PENDING)
        e->dim[root] = new_variable(e, ef_slot_size(e->draft->slots, root));
    if (e->dim[root] != EF_NONE)
        return e->dim[root];
    unsigned n = ef_slot_leaves(e->draft->slots, &root, 1, leaf);
    if (n == 1 && leaf[0] == root) {
        e->dim[root] = PENDING;
        ef_dim own = resolve_leaf(e, root);
        return e->dim[root] = e->dim[root] == PENDING ? own : e->dim[root];
    }
    for (unsigned i = 0; i < n; i++) { /* a leaf may be a product after all: the twin of one */
        const ef_var *own;
        unsigned more = ef_dim_atoms(e->ctx, resolve(e, leaf[i]), &own);
        if (count + more > EF_MAX_ATOMS)
            return e->dim[root] = new_variable(e, ef_slot_size(e->draft->slots, root));
        memcpy(atoms + count, own, more * sizeof *atoms);
        count += more;
    }
    ef_dim dim = count ? ef_dim_product(e->ctx, atoms, count) : EF_NONE;
    return e->dim[root] = dim == EF_NONE ? new_variable(e, ef_slot_size(e->draft->slots, root)) : dim;
}

/* A node's dimensions, outermost first. */
static unsigned dims_of(emitter *e, const ef_dnode *node, ef_dim *dims)
{
    for (unsigned i = 0; i < node->rank; i++)
        dims[i] = resolve(e, node->dim[node->rank - 1 - i]);
    return node->rank;
}

/* ---- expressions ---- */

static uint64_t attribute(emitter *e, const ef_dnode *node)
{
    ef_dim dims[EF_MAX_RANK];
    unsigned rank;
    switch (node->op) {
    case EF_IOTA: return resolve(e, node->dim[0]);
    case EF_RESHAPE:
    case EF_BROADCAST: rank = dims_of(e, node, dims); return ef_dims_intern(e->ctx, dims, rank);
    default: return node->attr;
    }
}

/* The expression under the dimensions that the draft says. */
static ef_expr named(emitter *e, ef_expr x, const ef_dnode *node)
{
    ef_dim dims[EF_MAX_RANK];
    unsigned rank = dims_of(e, node, dims);
    const ef_type_info *type = ef_type_at(e->ctx, ef_dag_type(e->dag, x));
    bool same = type->rank == rank;
    for (unsigned i = 0; same && i < rank; i++)
        same = type->dim[i] == dims[rank - 1 - i];
    return same ? x : ef_dag_add(e->dag, EF_RESHAPE, ef_dims_intern(e->ctx, dims, rank), &x, 1, e->diag);
}

static ef_expr emit(emitter *e, ef_dn id)
{
    const ef_dnode *node = &e->draft->nodes.at[id];
    ef_expr child[EF_MAX_FIELDS];
    if (node->op == EF_CONST)
        return ef_dag_const(e->dag, node->number);
    for (unsigned i = 0; i < node->count; i++)
        child[i] = e->expr[node->child[i]];
    ef_expr x = ef_twin_add(e->dag, (ef_op)node->op, attribute(e, node), child, node->count, e->diag);
    return x == EF_NONE ? EF_NONE : named(e, x, node);
}

static bool emit_input(emitter *e, ef_program *program, uint32_t i)
{
    const ef_region *r = e->region;
    ef_dim dims[EF_MAX_RANK];
    unsigned rank = dims_of(e, &e->draft->nodes.at[r->input[i]], dims);
    ef_type type = ef_type_tensor(e->ctx, r->input_dtype[i], dims, rank);
    program->input[i] = ef_input_declare(e->ctx, r->input_name[i], (unsigned)strlen(r->input_name[i]), type, e->diag);
    if (program->input[i] == EF_NONE)
        return false;
    e->expr[r->input[i]] = ef_dag_input(e->dag, program->input[i]);
    return true;
}

/* ---- names ---- */

/* A name that the text form takes and that is new: a letter or _ first, no reserved word. */
const char *ef_fresh_name(ef_arena *arena, ef_intern *taken, const char *wanted)
{
    static const char *const reserved[] = {"program", "dim", "input", "output", "inf", "nan"};
    char name[200];
    size_t n = 0;
    int fresh;
    if (!((wanted[0] >= 'a' && wanted[0] <= 'z') || (wanted[0] >= 'A' && wanted[0] <= 'Z') || wanted[0] == '_'))
        name[n++] = 'v';
    for (; *wanted && n < sizeof name - 16; wanted++) {
        bool good = (*wanted >= 'a' && *wanted <= 'z') || (*wanted >= 'A' && *wanted <= 'Z') ||
                    (*wanted >= '0' && *wanted <= '9');
        name[n++] = good ? *wanted : '_';
    }
    name[n] = 0;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0) {
            name[n++] = '_';
            name[n] = 0;
        }
    ef_intern_put(taken, name, strlen(name), &fresh);
    for (unsigned i = 2; !fresh; i++) {
        snprintf(name + n, 16, "_%u", i);
        ef_intern_put(taken, name, strlen(name), &fresh);
    }
    return ef_arena_strndup(arena, name, strlen(name));
}

/* Values of the exported graph that are computed here keep their names as statements. */
static void name_statements(emitter *e, ef_program *program, ef_arena *arena)
{
    const ef_region *r = e->region;
    ef_intern *taken = ef_intern_new();
    for (uint32_t i = 0; i < r->inputs; i++)
        ef_intern_put(taken, r->input_name[i], strlen(r->input_name[i]), NULL);
    for (uint32_t i = 0; i < r->outputs; i++)
        ef_intern_put(taken, r->output_name[i], strlen(r->output_name[i]), NULL);
    for (ef_dn i = 0; i < e->l->named.count; i++) {
        const ef_dnode *node = &e->draft->nodes.at[i];
        if (r->presence[i] != EF_COMPUTED || e->l->named.at[i] == EF_NONE || node->count == 0)
            continue;
        bool output = false;
        for (uint32_t k = 0; k < r->outputs; k++)
            output = output || program->output[k].expr == e->expr[i];
        if (output)
            continue;
        const char *wanted = e->l->exported->value[e->l->named.at[i]].name;
        program->statement[program->statements++] = (ef_named){ef_fresh_name(arena, taken, wanted), e->expr[i]};
    }
    for (uint32_t i = 0; i < r->outputs; i++)
        program->statement[program->statements++] = program->output[i];
    ef_intern_free(taken);
}

/* ---- the program ---- */

static bool emit_all(emitter *e, ef_program *program)
{
    const ef_region *r = e->region;
    for (ef_dn i = 0; i < e->draft->nodes.count; i++) {
        const ef_dnode *node = &e->draft->nodes.at[i];
        if (r->presence[i] != EF_COMPUTED || (node->op != EF_SLICE && node->op != EF_CONCAT))
            continue;
        e->made_by[node->dim[node->op == EF_SLICE ? ef_slice_index(node->attr) : (unsigned)node->attr]] = i;
    }
    for (uint32_t i = 0; i < r->inputs; i++)
        if (!emit_input(e, program, i))
            return false;
    for (ef_dn i = 0; i < e->draft->nodes.count; i++)
        if (r->presence[i] == EF_COMPUTED && (e->expr[i] = emit(e, i)) == EF_NONE)
            return false;
    for (uint32_t i = 0; i < r->outputs; i++) {
        ef_expr x = e->expr[r->output[i]];
        if (ef_type_at(e->ctx, ef_dag_type(e->dag, x))->dtype != r->output_dtype[i])
            x = ef_dag_add(e->dag, EF_CAST, r->output_dtype[i], &x, 1, e->diag);
        if (x == EF_NONE)
            return false;
        program->output[i] = (ef_named){r->output_name[i], x};
    }
    return true;
}

ef_program *ef_region_emit(ef_module *module, ef_translation *l, const ef_region *region, ef_diag *diag)
{
    struct ef_module_store *store = module->store;
    ef_arena *arena = ef_arena_new(), *scratch = ef_arena_new();
    ef_program *program = ef_arena_alloc(arena, sizeof *program);
    uint32_t slots = ef_slots_count(l->draft->slots), nodes = l->draft->nodes.count;
    emitter e = {.l = l, .draft = l->draft, .region = region, .ctx = ef_ctx_new(), .diag = diag};
    e.dag = ef_dag_new(e.ctx);
    e.dim = ef_arena_alloc(scratch, slots * sizeof *e.dim);
    e.made_by = ef_arena_alloc(scratch, slots * sizeof *e.made_by);
    e.expr = ef_arena_alloc(scratch, nodes * sizeof *e.expr);
    memset(e.dim, 0xff, slots * sizeof *e.dim);
    memset(e.made_by, 0xff, slots * sizeof *e.made_by);
    memset(e.expr, 0xff, nodes * sizeof *e.expr);
    *program = (ef_program){.dag = e.dag, .arena = arena, .comment = "", .inputs = region->inputs};
    program->outputs = region->outputs;
    program->name = ef_arena_strndup(arena, region->name, strlen(region->name));
    program->input = ef_arena_alloc(arena, (region->inputs + 1) * sizeof *program->input);
    program->output = ef_arena_alloc(arena, (region->outputs + 1) * sizeof *program->output);
    program->statement = ef_arena_alloc(arena, (nodes + region->outputs + 1) * sizeof *program->statement);
    ef_vec_push(&store->programs, program);
    ef_vec_push(&store->contexts, e.ctx);
    bool good = emit_all(&e, program);
    if (good)
        name_statements(&e, program, arena);
    ef_arena_free(scratch);
    return good ? program : NULL;
}

/* Other sizes for a program: see resize.h.
 *
 * A dependency is an equation between two products of variables; a concatenation counts as the sum of its parts, a
 * slice as the constant that it is. The named variables that equations connect are assigned together, by a search with
 * backtracking: where one variable of an equation is left it follows from the others, else a variable of the equation
 * that has the fewest left is tried with small extents. */
#include "ir/resize.h"

#include <stdlib.h>
#include <string.h>

#include "support/hash.h"
#include "support/vec.h"

#define MOST_FACTORS (EF_MAX_RANK * EF_MAX_ATOMS)
#define MOST_TRIES 4000 /* extents tried for the variables of one component */
#define MOST_VALUES 16  /* extents tried for one variable */

typedef struct {
    unsigned left, right; /* how many factors each side has */
    ef_var factor[2 * MOST_FACTORS];
    uint32_t first, count; /* the named variables in it, in ef_resizing.variable */
} equation;

struct ef_resizing {
    ef_ctx *ctx;
    uint32_t vars;
    uint64_t *was;    /* by variable: the program's own extent */
    uint64_t *extent; /* by named variable: as assigned so far, 0: not yet */
    uint8_t *fixed;   /* by named variable: positions of it are spoken of */
    uint8_t *looked;  /* by variable: what it is made of was looked at */
    ef_var *group;    /* by named variable: union-find over what equations connect */
    EF_VEC(ef_var) variable;
    EF_VEC(equation) list; /* each one once */
    ef_intern *seen;
    /* while one component is assigned */
    EF_VEC(uint32_t) component; /* its equations */
    EF_VEC(ef_var) assigned;    /* in order */
    ef_rng *rng;
    const uint32_t *choice; /* extents that are tried */
    unsigned choices;
    uint32_t tries;
    bool own; /* the program's own extents are tried as well */
};

/* ---- what a variable is made of ---- */

/* The dimensions that a variable is the sum (a concatenation) or the whole (any other) of; none for a named one, a
 * slice or a count. */
static unsigned parts_of(const ef_ctx *ctx, ef_var var, const ef_dim **parts)
{
    const ef_var_info *info = ef_var_at(ctx, var);
    *parts = &info->parent;
    if (info->kind == EF_VAR_CONCAT)
        return ef_dims_at(ctx, info->parts, parts);
    return info->kind == EF_VAR_TWIN || info->kind == EF_VAR_JOINED ? 1 : 0;
}

/* Pushes the named variables that an extent depends on. */
static void push_named(ef_resizing *s, ef_var var)
{
    const ef_dim *parts;
    const ef_var *atoms;
    if (ef_var_at(s->ctx, var)->kind == EF_VAR_NAMED) {
        ef_vec_push(&s->variable, var);
        return;
    }
    for (unsigned i = 0, n = parts_of(s->ctx, var, &parts); i < n; i++)
        for (unsigned k = 0, total = ef_dim_atoms(s->ctx, parts[i], &atoms); k < total; k++)
            push_named(s, atoms[k]);
}

static void fix_dim(ef_resizing *s, ef_dim dim)
{
    const ef_var *atoms;
    uint32_t first = s->variable.count;
    for (unsigned i = 0, n = ef_dim_atoms(s->ctx, dim, &atoms); i < n; i++)
        push_named(s, atoms[i]);
    for (uint32_t i = first; i < s->variable.count; i++)
        s->fixed[s->variable.at[i]] = 1;
    s->variable.count = first;
}

/* Slices that stand in a type fix what they are positions of. */
static void look_at(ef_resizing *s, ef_dim dim)
{
    const ef_dim *parts;
    const ef_var *atoms;
    for (unsigned i = 0, n = ef_dim_atoms(s->ctx, dim, &atoms); i < n; i++) {
        ef_var var = atoms[i];
        if (s->looked[var])
            continue;
        s->looked[var] = 1;
        if (ef_var_at(s->ctx, var)->kind == EF_VAR_SLICE)
            fix_dim(s, ef_var_at(s->ctx, var)->parent);
        for (unsigned k = 0, count = parts_of(s->ctx, var, &parts); k < count; k++)
            look_at(s, parts[k]);
    }
}

/* ---- equations ---- */

static ef_var root_of(ef_resizing *s, ef_var var)
{
    while (s->group[var] != var)
        var = s->group[var] = s->group[s->group[var]];
    return var;
}

static int by_variable(const void *a, const void *b)
{
    ef_var x = *(const ef_var *)a, y = *(const ef_var *)b;
    return x < y ? -1 : x > y;
}

/* Takes from both sorted lists what they have in common. */
static void cancel(ef_var *a, unsigned *na, ef_var *b, unsigned *nb)
{
    unsigned i = 0, k = 0, left = 0, right = 0;
    while (i < *na || k < *nb) {
        if (i < *na && k < *nb && a[i] == b[k])
            i++, k++;
        else if (k == *nb || (i < *na && a[i] < b[k]))
            a[left++] = a[i++];
        else
            b[right++] = b[k++];
    }
    *na = left;
    *nb = right;
}

/* A twin is as long as the variable that it is a twin of. */
static ef_var without_twin(const ef_ctx *ctx, ef_var var)
{
    const ef_var *atoms;
    while (ef_var_at(ctx, var)->kind == EF_VAR_TWIN && ef_dim_atoms(ctx, ef_var_at(ctx, var)->parent, &atoms) == 1)
        var = atoms[0];
    return var;
}

static void add_equation(ef_resizing *s, const ef_var *a, unsigned na, const ef_var *b, unsigned nb)
{
    ef_var left[MOST_FACTORS], right[MOST_FACTORS];
    equation e = {0};
    int fresh;
    for (unsigned i = 0; i < na; i++)
        left[i] = without_twin(s->ctx, a[i]);
    for (unsigned i = 0; i < nb; i++)
        right[i] = without_twin(s->ctx, b[i]);
    qsort(left, na, sizeof *left, by_variable);
    qsort(right, nb, sizeof *right, by_variable);
    cancel(left, &na, right, &nb);
    if (na + nb == 0)
        return;
    e.left = na;
    e.right = nb;
    memcpy(e.factor, left, na * sizeof *left);
    memcpy(e.factor + na, right, nb * sizeof *right);
    ef_intern_put(s->seen, &e, sizeof e, &fresh);
    if (!fresh)
        return;
    e.first = s->variable.count;
    for (unsigned i = 0; i < na + nb; i++)
        push_named(s, e.factor[i]);
    e.count = s->variable.count - e.first;
    for (uint32_t i = 1; i < e.count; i++)
        s->group[root_of(s, s->variable.at[e.first + i])] = root_of(s, s->variable.at[e.first]);
    ef_vec_push(&s->list, e);
}

static unsigned flatten(const ef_ctx *ctx, const ef_type_info *type, ef_var *flat)
{
    const ef_var *atoms;
    unsigned n = 0;
    for (unsigned i = type->rank; i-- > 0;)
        for (unsigned k = 0, count = ef_dim_atoms(ctx, type->dim[i], &atoms); k < count; k++)
            flat[n++] = atoms[k];
    return n;
}

/* From the outermost variable on, as few of both sides at a time as have equally many elements: tiles of the others can
 * be reshaped then, too (infer.c). What collections made has no extent of its own, and stays as it is. */
static void add_reshape(ef_resizing *s, const ef_type_info *from, const ef_type_info *to)
{
    ef_var a[MOST_FACTORS], b[MOST_FACTORS];
    unsigned na = flatten(s->ctx, from, a), nb = flatten(s->ctx, to, b);
    if (na == nb && memcmp(a, b, na * sizeof *a) == 0)
        return;
    for (unsigned i = 0, k = 0; i < na && k < nb;) {
        uint64_t pa = 1, pb = 1;
        unsigned first = i, start = k;
        do {
            bool take = pa <= pb && i < na;
            if (!take && k == nb)
                return;
            *(take ? &pa : &pb) *= s->was[take ? a[i++] : b[k++]];
        } while (pa != pb);
        if (pa)
            add_equation(s, a + first, i - first, b + start, k - start);
    }
}

static void read_term(ef_resizing *s, const ef_dag *dag, ef_expr e)
{
    const ef_expr *child;
    ef_type type = ef_dag_type(dag, e);
    const ef_type_info *info = ef_type_at(s->ctx, type);
    for (unsigned i = 0; i < info->rank; i++)
        look_at(s, info->dim[i]);
    ef_op op = ef_dag_op(dag, e);
    if (op != EF_RESHAPE && op != EF_SLICE)
        return;
    ef_dag_children(dag, e, &child);
    const ef_type_info *operand = ef_type_at(s->ctx, ef_dag_type(dag, child[0]));
    if (op == EF_SLICE)
        fix_dim(s, operand->dim[ef_slice_index(ef_dag_attr(dag, e))]);
    else
        add_reshape(s, operand, info);
}

ef_resizing *ef_resizing_new(ef_ctx *ctx)
{
    ef_resizing *s = ef_xcalloc(1, sizeof *s);
    s->ctx = ctx;
    s->vars = ef_var_count(ctx);
    s->was = ef_xcalloc(s->vars + 1, sizeof *s->was);
    s->extent = ef_xcalloc(s->vars + 1, sizeof *s->extent);
    s->fixed = ef_xcalloc(s->vars + 1, 1);
    s->looked = ef_xcalloc(s->vars + 1, 1);
    s->group = ef_xcalloc(s->vars + 1, sizeof *s->group);
    s->seen = ef_intern_new();
    for (ef_var v = 0; v < s->vars; v++) {
        s->was[v] = ef_var_at(ctx, v)->extent;
        s->group[v] = v;
    }
    return s;
}

void ef_resizing_read(ef_resizing *s, const ef_dag *dag, const ef_expr *roots, uint32_t count)
{
    uint8_t *reached = ef_xcalloc(ef_dag_count(dag) + 1, 1);
    for (uint32_t i = 0; i < count; i++)
        reached[roots[i]] = 1;
    for (ef_expr e = ef_dag_count(dag); e-- > 0;) { /* operands are older */
        const ef_expr *child;
        if (!reached[e])
            continue;
        for (unsigned i = 0, n = ef_dag_children(dag, e, &child); i < n; i++)
            reached[child[i]] = 1;
        read_term(s, dag, e);
    }
    free(reached);
}

void ef_resizing_keep(ef_resizing *s, ef_var var)
{
    fix_dim(s, ef_dim_of_var(s->ctx, var));
}

/* ---- assigning ---- */

/* The extent under what is assigned; more than EF_MAX_EXTENT where it is too large. */
static uint64_t extent_of(const ef_resizing *s, ef_var var);

static uint64_t product_of(const ef_resizing *s, const ef_var *factor, unsigned count)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < count; i++) {
        uint64_t extent = extent_of(s, factor[i]);
        if (extent > EF_MAX_EXTENT || (extent && product > EF_MAX_EXTENT / extent))
            return EF_MAX_EXTENT + 1;
        product *= extent;
    }
    return product;
}

static uint64_t extent_of(const ef_resizing *s, ef_var var)
{
    const ef_dim *parts;
    const ef_var *atoms;
    uint64_t sum = 0;
    if (ef_var_at(s->ctx, var)->kind == EF_VAR_NAMED)
        return s->extent[var];
    unsigned n = parts_of(s->ctx, var, &parts);
    for (unsigned i = 0; i < n && sum <= EF_MAX_EXTENT; i++) {
        unsigned count = ef_dim_atoms(s->ctx, parts[i], &atoms);
        sum += product_of(s, atoms, count);
    }
    return n ? sum : s->was[var];
}

/* How much longer the left side is; false where one is too large. */
static bool balance(const ef_resizing *s, const equation *e, int64_t *by)
{
    uint64_t left = product_of(s, e->factor, e->left), right = product_of(s, e->factor + e->left, e->right);
    *by = (int64_t)left - (int64_t)right;
    return left <= EF_MAX_EXTENT && right <= EF_MAX_EXTENT;
}

static void assign(ef_resizing *s, ef_var var, uint64_t extent)
{
    s->extent[var] = extent;
    ef_vec_push(&s->assigned, var);
}

static void undo(ef_resizing *s, uint32_t count)
{
    while (s->assigned.count > count)
        s->extent[s->assigned.at[--s->assigned.count]] = 0;
}

static unsigned unknowns(const ef_resizing *s, const equation *e, ef_var *some)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        ef_var var = s->variable.at[e->first + i];
        if (s->extent[var] == 0 && (n == 0 || *some != var)) {
            *some = var;
            n++;
        }
    }
    return n;
}

/* The last unknown variable of an equation follows, where it occurs in one factor of one side; nothing follows where
 * any extent would do. False where none does. */
static bool follow(ef_resizing *s, const equation *e, ef_var var)
{
    int64_t at2, at3, rest;
    s->extent[var] = 2;
    bool fits = balance(s, e, &at2);
    s->extent[var] = 3;
    fits = balance(s, e, &at3) && fits;
    s->extent[var] = 0;
    if (!fits || at2 == at3)
        return fits && at2 == 0;
    int64_t extent = 2 - at2 / (at3 - at2);
    if (at2 % (at3 - at2) != 0 || extent < 2 || (uint64_t)extent > EF_MAX_EXTENT)
        return false;
    assign(s, var, (uint64_t)extent);
    return balance(s, e, &rest) && rest == 0;
}

/* All that follows from what is assigned; false where something contradicts. */
static bool follow_all(ef_resizing *s)
{
    uint32_t before;
    do {
        before = s->assigned.count;
        for (uint32_t i = 0; i < s->component.count; i++) {
            const equation *e = &s->list.at[s->component.at[i]];
            ef_var var = EF_NONE;
            int64_t rest;
            unsigned left = unknowns(s, e, &var);
            if (left == 0 ? !balance(s, e, &rest) || rest != 0 : left == 1 && !follow(s, e, var))
                return false;
        }
    } while (s->assigned.count > before);
    return true;
}

/* An unknown variable of the equation that has the fewest; EF_NONE where all is known. */
static ef_var next_unknown(const ef_resizing *s)
{
    ef_var best = EF_NONE;
    unsigned fewest = 0;
    for (uint32_t i = 0; i < s->component.count; i++) {
        ef_var var = EF_NONE;
        unsigned n = unknowns(s, &s->list.at[s->component.at[i]], &var);
        if (n && (best == EF_NONE || n < fewest)) {
            best = var;
            fewest = n;
        }
    }
    return best;
}

/* The extents to try for a variable, in random order; the program's own last. */
static unsigned values_for(ef_resizing *s, ef_var var, uint64_t *value)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->choices && i < MOST_VALUES; i++) {
        uint32_t at = ef_rng_below(s->rng, ++n);
        value[n - 1] = value[at];
        value[at] = s->choice[i];
    }
    if (s->own)
        value[n++] = s->was[var];
    return n;
}

/* Assigns what is left of the component; false, and nothing assigned, where that fails. */
static bool assign_rest(ef_resizing *s)
{
    uint32_t before = s->assigned.count;
    uint64_t value[MOST_VALUES + 1] = {0};
    if (follow_all(s)) {
        ef_var var = next_unknown(s);
        if (var == EF_NONE)
            return true;
        unsigned count = values_for(s, var, value);
        for (unsigned i = 0; i < count && s->tries < MOST_TRIES; i++) {
            s->tries++;
            uint32_t here = s->assigned.count;
            assign(s, var, value[i]);
            if (assign_rest(s))
                return true;
            undo(s, here);
        }
    }
    undo(s, before);
    return false;
}

static void draw_component(ef_resizing *s, ef_var root)
{
    s->component.count = s->assigned.count = 0;
    for (uint32_t i = 0; i < s->list.count; i++) {
        const equation *e = &s->list.at[i];
        if (e->count && root_of(s, s->variable.at[e->first]) == root)
            ef_vec_push(&s->component, i);
    }
    for (unsigned own = 0; own < 2; own++) {
        s->own = own;
        s->tries = 0;
        if (assign_rest(s))
            return;
    }
    for (ef_var v = 0; v < s->vars; v++)
        if (root_of(s, v) == root && ef_var_at(s->ctx, v)->kind == EF_VAR_NAMED)
            s->extent[v] = s->was[v];
}

void ef_resizing_draw(ef_resizing *s, ef_rng *rng, const uint32_t *extents, unsigned count)
{
    s->rng = rng;
    s->choice = extents;
    s->choices = count;
    for (ef_var v = 0; v < s->vars; v++)
        s->extent[v] = s->fixed[v] ? s->was[v] : 0;
    for (uint32_t i = 0; i < s->variable.count; i++)
        if (s->extent[s->variable.at[i]] == 0)
            draw_component(s, root_of(s, s->variable.at[i]));
    for (ef_var v = 0; v < s->vars; v++)
        if (ef_var_at(s->ctx, v)->kind == EF_VAR_NAMED)
            ef_var_resize(s->ctx, v, s->extent[v] ? s->extent[v] : extents[ef_rng_below(rng, count)]);
    ef_concat_resize(s->ctx);
}

void ef_resizing_restore(ef_resizing *s)
{
    for (ef_var v = 0; v < s->vars; v++)
        ef_var_resize(s->ctx, v, s->was[v]);
    ef_concat_resize(s->ctx);
}

void ef_resizing_free(ef_resizing *s)
{
    free(s->was);
    free(s->extent);
    free(s->fixed);
    free(s->looked);
    free(s->group);
    ef_vec_free(&s->variable);
    ef_vec_free(&s->list);
    ef_vec_free(&s->component);
    ef_vec_free(&s->assigned);
    ef_intern_free(s->seen);
    free(s);
}

/* The proof checker: see check.h.
 *
 * 1. An equation of a rule that is data is an instance of it: the left side matches `before`, the conditions that make
 *    the rule true hold, and the right side is `after`, all of it over plain terms.
 * 2. Both sides of every equation evaluate to the same numbers, at small random sizes and several tilings. For rules
 *    that are native (repair) this is the check; for the others it is a second one. Equations that speak of an extent
 *    (a literal that counts elements) hold at the program's own sizes only: those have the first check alone, and so
 *    have those that a dimension which keeps its extent makes too large (resize.h says which do).
 * 3. The claim follows from the equations by congruence closure. */
#include "search/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/resize.h"
#include "search/policy.h"
#include "support/rng.h"

_Static_assert(EF_STEP_TUPLE == EF_RULE_TUPLE_INTRO, "the step of a proof and of the search are the same");

#define SEEDS 3
#define STRETCH_SEEDS 12 /* more of them for native steps, whose numbers are all that is checked */
#define TOLERANCE 1e-8
#define FLOOR 1e-12 /* what rounding may leave of nothing */
#define ELEMENT_LIMIT (UINT64_C(1) << 24)
#define FREE_AXES 12 /* a free choice is tried over the subsets of at most so many axes */

typedef struct {
    const ef_proof *proof;
    const ef_ruleset *rules;
    ef_ctx *ctx;
    ef_dag *dag;
    uint8_t *is_constant; /* by term: built of literals alone */
    double *constant;
    uint8_t *syntactic; /* by step: the first check was made */
    uint64_t *compared; /* by step: numbers that agreed in the second */
    ef_diag *diag;
} checker;

static bool refuse(const checker *c, uint32_t step, const char *what)
{
    const ef_proof_step *s = &c->proof->step[step];
    return ef_fail(c->diag, "step %u (%s): %s", step + 1,
                   ef_proof_rule_name(c->rules->rules.at, c->rules->rules.count, s->rule), what);
}

static void find_constants(checker *c)
{
    uint32_t count = ef_dag_count(c->dag);
    c->is_constant = ef_xcalloc(count + 1, 1);
    c->constant = ef_xcalloc(count + 1, sizeof *c->constant);
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(c->dag, e);
        unsigned n = ef_dag_children(c->dag, e, &child);
        bool known = op == EF_CONST || (ef_op_pointwise(op) && op != EF_CAST);
        double x[3] = {0};
        for (unsigned i = 0; known && i < n; i++) {
            known = c->is_constant[child[i]];
            x[i] = c->constant[child[i]];
        }
        c->is_constant[e] = known;
        if (known)
            c->constant[e] = op == EF_CONST ? ef_attr_to_number(ef_dag_attr(c->dag, e)) : ef_op_apply(op, 0, x);
    }
}

/* ---- 1. instances of rules ---- */

typedef enum { STAGE_LEFT, STAGE_CONDITION, STAGE_RIGHT } stage;

/* An attempt to read one step as an instance of its rule; goes on until a reading fits. */
typedef struct {
    const checker *c;
    const ef_rule *rule;
    ef_expr before, after, at[EF_PATTERN_NODES], var[EF_PATTERN_VARS];
    uint64_t attr[EF_PATTERN_ATTRS];
    struct {
        ef_op op;
        uint64_t attr;
    } op[EF_PATTERN_OPS];
    stage reached; /* the farthest that any reading came, for the message */
    const char *condition;
} reading;

static bool read_left(reading *r, unsigned position);
static bool read_conditions(reading *r, unsigned which);
static bool read_right(reading *r, unsigned position);

static bool read_next(reading *r, bool right, unsigned position)
{
    return right ? read_right(r, position + 1) : read_left(r, position + 1);
}

/* Reads the operands in their order, and a commutative operator's in the other as well. */
static bool read_operands(reading *r, bool right, unsigned position, ef_expr e)
{
    const ef_pattern_node *p = (right ? &r->rule->right : &r->rule->left)->node + position;
    const ef_expr *child;
    unsigned count = ef_dag_children(r->c->dag, e, &child);
    if (count != p->children)
        return false;
    for (unsigned i = 0; i < count; i++)
        r->at[p->child[i]] = child[i];
    reading saved = *r;
    if (read_next(r, right, position))
        return true;
    if (count != 2 || child[0] == child[1] || !ef_op_commutative(ef_dag_op(r->c->dag, e)))
        return false;
    stage reached = r->reached;
    const char *condition = r->condition;
    *r = saved;
    r->reached = reached;
    r->condition = condition;
    r->at[p->child[0]] = child[1];
    r->at[p->child[1]] = child[0];
    return read_next(r, right, position);
}

static bool read_slots(reading *r, const ef_pattern_node *p, ef_op op, uint64_t attr)
{
    uint64_t value[2];
    for (unsigned i = 0, slots = ef_attr_slots(op, attr, value); i < slots; i++) {
        const ef_slot *slot = &p->slot[i];
        if (slot->kind == EF_SLOT_VAR && slot->binds)
            r->attr[slot->value] = value[i];
        else if (value[i] != (slot->kind == EF_SLOT_VAR ? r->attr[slot->value] : slot->value))
            return false;
    }
    return true;
}

static bool is_number(const reading *r, ef_expr e, double number)
{
    return ef_dag_op(r->c->dag, e) == EF_CONST && ef_attr_to_number(ef_dag_attr(r->c->dag, e)) == number;
}

static bool read_left(reading *r, unsigned position)
{
    if (position == r->rule->left.count)
        return read_conditions(r, 0);
    const ef_pattern_node *p = &r->rule->left.node[position];
    ef_expr e = r->at[position];
    ef_op op = ef_dag_op(r->c->dag, e);
    uint64_t attr = ef_dag_attr(r->c->dag, e);
    switch (p->kind) {
    case EF_PAT_VAR:
        if (p->binds)
            r->var[p->index] = e;
        return r->var[p->index] == e && read_left(r, position + 1);
    case EF_PAT_NUMBER: return is_number(r, e, p->number) && read_left(r, position + 1);
    case EF_PAT_OP: return op == p->op && read_slots(r, p, op, attr) && read_operands(r, false, position, e);
    default: break;
    }
    if (ef_ops[op].class != p->class || (!p->binds && (r->op[p->index].op != op || r->op[p->index].attr != attr)))
        return false;
    r->op[p->index].op = op;
    r->op[p->index].attr = attr;
    return read_operands(r, false, position, e);
}

static ef_condition_arg argument(const checker *c, ef_expr e)
{
    return (ef_condition_arg){
        .type = ef_dag_type(c->dag, e), .id = EF_NONE, .constant = c->is_constant[e], .value = c->constant[e]};
}

static bool holds(reading *r, const ef_condition *condition)
{
    ef_scope scope = {.ctx = r->c->ctx};
    ef_condition_arg vars[EF_PATTERN_VARS] = {0}, root = argument(r->c, r->before);
    for (unsigned i = 0; i < r->rule->vars; i++)
        vars[i] = argument(r->c, r->var[i]);
    return ef_condition_holds(&scope, condition, vars, &root, r->attr);
}

/* Conditions that choose among values all of which are true: a part of the axes that they give, or, for `bound`, of
 * its argument. */
static bool chooses_freely(const ef_condition *condition)
{
    static const char *const free_choices[] = {"grid", "rows", "bound"};
    for (unsigned i = 0; i < sizeof free_choices / sizeof *free_choices; i++)
        if (condition->binds >= 0 && strcmp(condition->name, free_choices[i]) == 0)
            return true;
    return false;
}

/* Whether some choice makes the right side `after`. */
static bool read_choices(reading *r, unsigned which)
{
    const ef_condition *condition = &r->rule->condition[which];
    const ef_axis *all;
    ef_axis axes[FREE_AXES];
    bool bound = strcmp(condition->name, "bound") == 0;
    if (!holds(r, condition) || (bound && condition->arg[0].kind != EF_ARG_ATTR))
        return false;
    ef_axes most = (ef_axes)(bound ? r->attr[condition->arg[0].index] : r->attr[condition->binds]);
    unsigned count = ef_axes_at(r->c->ctx, most, &all);
    if (count > FREE_AXES)
        return false;
    memcpy(axes, all, count * sizeof *axes); /* interning may move the set */
    for (unsigned choice = bound ? 0 : 1; choice < 1u << count; choice++) {
        ef_axis chosen[FREE_AXES];
        unsigned n = 0;
        for (unsigned i = 0; i < count; i++)
            if (choice >> i & 1u)
                chosen[n++] = axes[i];
        r->attr[condition->binds] = ef_axes_intern(r->c->ctx, chosen, n);
        if (read_conditions(r, which + 1))
            return true;
    }
    return false;
}

static bool read_conditions(reading *r, unsigned which)
{
    r->reached = r->reached < STAGE_CONDITION ? STAGE_CONDITION : r->reached;
    if (which == r->rule->conditions) {
        r->reached = STAGE_RIGHT;
        r->at[0] = r->after;
        return r->rule->builder || read_right(r, 0);
    }
    const ef_condition *condition = &r->rule->condition[which];
    if (condition->policy && condition->binds < 0)
        return read_conditions(r, which + 1);
    if (chooses_freely(condition))
        return read_choices(r, which);
    if (!holds(r, condition)) {
        r->condition = condition->name;
        return false;
    }
    return read_conditions(r, which + 1);
}

/* A view of the right side: its operand when there is nothing to view or a literal, else its canonical form, which may
 * be two nodes. */
static bool read_view(reading *r, unsigned position, ef_expr e, ef_axes axes)
{
    const ef_dag *dag = r->c->dag;
    const ef_expr *child;
    ef_axes inner, outer;
    ef_expr *operand = &r->at[r->rule->right.node[position].child[0]];
    if (axes == 0 || ef_type_is_literal(r->c->ctx, ef_dag_type(dag, e))) {
        *operand = e;
        return read_right(r, position + 1);
    }
    ef_axes part = (ef_axes)ef_dag_attr(dag, e);
    if (ef_dag_op(dag, e) != EF_VIEW)
        return false;
    ef_dag_children(dag, e, &child);
    ef_expr x = child[0];
    if (part != axes) {
        if (ef_dag_op(dag, x) != EF_VIEW)
            return false;
        ef_axes below = (ef_axes)ef_dag_attr(dag, x);
        ef_dag_children(dag, x, &child);
        x = child[0];
        ef_view_split(r->c->ctx, axes, ef_dag_type(dag, x), &inner, &outer);
        if (inner != below || outer != part)
            return false;
    } else {
        ef_view_split(r->c->ctx, axes, ef_dag_type(dag, x), &inner, &outer);
        if (inner && outer)
            return false;
    }
    *operand = x;
    return read_right(r, position + 1);
}

static bool read_right(reading *r, unsigned position)
{
    if (position == r->rule->right.count)
        return true;
    const ef_pattern_node *p = &r->rule->right.node[position];
    ef_expr e = r->at[position];
    ef_op op = p->op;
    if (p->kind == EF_PAT_VAR)
        return r->var[p->index] == e && read_right(r, position + 1);
    if (p->kind == EF_PAT_NUMBER)
        return is_number(r, e, p->number) && read_right(r, position + 1);
    uint64_t attr = r->op[p->index].attr;
    if (p->kind == EF_PAT_ANYOP)
        op = r->op[p->index].op;
    else
        attr = ef_pattern_attr(r->c->ctx, r->rule, p, op, r->attr);
    if (op == EF_VIEW)
        return read_view(r, position, e, (ef_axes)attr);
    if (op == EF_COMBINE && attr == 0) {
        r->at[p->child[0]] = e;
        return read_right(r, position + 1);
    }
    return ef_dag_op(r->c->dag, e) == op && ef_dag_attr(r->c->dag, e) == attr && read_operands(r, true, position, e);
}

static bool check_instance(checker *c, uint32_t step)
{
    const ef_proof_step *s = &c->proof->step[step];
    const ef_rule *rule = &c->rules->rules.at[s->rule];
    reading r = {.c = c, .rule = rule, .before = s->before, .after = s->after};
    char what[96];
    r.at[0] = s->before;
    if (read_left(&r, 0)) {
        c->syntactic[step] = !rule->builder;
        return true;
    }
    if (r.reached == STAGE_LEFT)
        return refuse(c, step, "the left side does not match");
    if (r.reached == STAGE_RIGHT)
        return refuse(c, step, "the right side differs");
    snprintf(what, sizeof what, "the condition %s does not hold", r.condition ? r.condition : "of the rule");
    return refuse(c, step, what);
}

static bool check_tuple(checker *c, uint32_t step)
{
    const ef_proof_step *s = &c->proof->step[step];
    const ef_expr *child;
    if (ef_dag_op(c->dag, s->after) != EF_GET)
        return refuse(c, step, "the right side is no get");
    uint64_t field = ef_dag_attr(c->dag, s->after);
    ef_dag_children(c->dag, s->after, &child);
    ef_expr tuple = child[0];
    if (ef_dag_op(c->dag, tuple) != EF_TUPLE || field >= ef_dag_children(c->dag, tuple, &child) ||
        child[field] != s->before)
        return refuse(c, step, "the field of the tuple is not the left side");
    c->syntactic[step] = 1;
    return true;
}

static bool check_fold(checker *c, uint32_t step)
{
    const ef_proof_step *s = &c->proof->step[step];
    if (!c->is_constant[s->before] || ef_dag_op(c->dag, s->after) != EF_CONST)
        return refuse(c, step, "these are not literals");
    if (!ef_constants_agree(c->constant[s->before], c->constant[s->after]))
        return refuse(c, step, "the values differ");
    c->syntactic[step] = 1;
    return true;
}

static bool check_step(checker *c, uint32_t step)
{
    const ef_proof_step *s = &c->proof->step[step];
    uint32_t count = ef_dag_count(c->dag);
    if (s->before >= count || s->after >= count)
        return refuse(c, step, "there is no such term");
    if (ef_dag_type(c->dag, s->before) != ef_dag_type(c->dag, s->after))
        return refuse(c, step, "the types of the two sides differ");
    if (s->rule == EF_STEP_FOLD)
        return check_fold(c, step);
    if (s->rule == EF_STEP_TUPLE)
        return check_tuple(c, step);
    if (s->rule >= c->rules->rules.count)
        return refuse(c, step, "there is no such rule");
    return check_instance(c, step);
}

/* ---- 2. numbers ---- */

/* How inputs are drawn. In the last three whole stretches of positions along some dimension hold one value, so that
 * whole tiles are zero, masked, or equal, each in one input and not in another. */
typedef enum {
    DRAW_NORMAL,
    DRAW_POSITIVE, /* so that roots and logarithms are seen as numbers, too */
    DRAW_ZEROS,
    DRAW_MASKED, /* -inf among positive numbers, so that sums and products with it are -inf, too */
    DRAW_EQUAL   /* small integers */
} draw;

typedef struct {
    const checker *c;
    ef_rng rng;
    uint64_t seed;
    draw draw;
} sample;

static double draw_element(ef_rng *rng, draw d, bool boolean)
{
    double x = ef_rng_normal(rng);
    return boolean ? x > 0 : d == DRAW_POSITIVE || d == DRAW_MASKED ? fabs(x) + 0.1 : x;
}

static double draw_stretch(ef_rng *rng, draw d, bool boolean)
{
    double integer = (double)ef_rng_below(rng, 5) - 1;
    return boolean ? integer > 1 : d == DRAW_ZEROS ? 0 : d == DRAW_MASKED ? -INFINITY : integer;
}

/* Overwrites every other stretch of positions along one dimension. */
static void fill_stretches(ef_rng *rng, draw d, bool boolean, ef_tensor *out, uint64_t count)
{
    unsigned along = (unsigned)ef_rng_below(rng, out->rank);
    uint64_t stride = 1, extent = out->extent[along];
    for (unsigned i = along + 1; i < out->rank; i++)
        stride *= out->extent[i];
    bool special = ef_rng_below(rng, 2);
    for (uint64_t start = 0, length; start < extent; start += length, special = !special) {
        double value = draw_stretch(rng, d, boolean);
        length = 1 + ef_rng_below(rng, 4);
        for (uint64_t i = 0; special && i < count; i++)
            if (i / stride % extent >= start && i / stride % extent < start + length)
                out->data[i] = value;
    }
}

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    const sample *s = user;
    ef_rng rng = {s->seed + UINT64_C(0x9e3779b97f4a7c15) * (input + 1)};
    bool boolean = ef_type_at(s->c->ctx, ef_input_type(s->c->ctx, input))->dtype == EF_BOOL;
    uint64_t count = 1;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++)
        out->data[i] = draw_element(&rng, s->draw, boolean);
    if (s->draw >= DRAW_ZEROS && out->rank && ef_rng_below(&rng, 3))
        fill_stretches(&rng, s->draw, boolean, out, count);
}

/* Other extents, and tiles of every axis that cut them into few or many; the caller frees the list. */
static ef_tiling random_sizes(const checker *c, ef_resizing *sizes, ef_rng *rng)
{
    static const uint32_t extents[] = {2, 3, 4, 5};
    ef_resizing_draw(sizes, rng, extents, sizeof extents / sizeof *extents);
    uint32_t vars = ef_var_count(c->ctx);
    ef_tile *tiles = ef_xcalloc(2 * (size_t)vars + 1, sizeof *tiles);
    unsigned count = 0;
    for (ef_var v = 0; v < vars; v++) {
        uint64_t unit = (ef_var_at(c->ctx, v)->extent + 4) / 5;
        for (unsigned level = 0; level < 2; level++)
            tiles[count++] = (ef_tile){ef_axis_of(v, level), (1 + ef_rng_below(rng, 4)) * (unit ? unit : 1)};
    }
    return (ef_tiling){.tiles = tiles, .count = count, .fallback = 2};
}

/* A literal of the rule counts elements, so the equation holds at the program's own sizes. */
static bool speaks_of_extents(const checker *c, uint32_t step)
{
    uint32_t rule = c->proof->step[step].rule;
    if (rule >= c->rules->rules.count)
        return false;
    const ef_rule *r = &c->rules->rules.at[rule];
    for (unsigned i = 0; i < r->conditions; i++)
        if (strcmp(r->condition[i].name, "extent") == 0)
            return true;
    return false;
}

/* The largest difference beyond rounding, relative to the largest value, over two tensors; counts the elements that
 * were compared. Rules speak of real arithmetic: of what is not a number before, nothing is said (infinite inputs are
 * drawn everywhere, and 0 times infinity, which a masked weight gives, is lost with a masked tile; ruletest.c draws
 * them as masks only and is strict). After a native rule there must be a number where there was one; an instance of
 * another rule may stand for its rule in either direction. */
static double difference(const ef_tensor *a, const ef_tensor *b, bool native, uint64_t *compared)
{
    double largest = 0, scale = 0;
    uint64_t count = 1;
    if (a->rank != b->rank || memcmp(a->extent, b->extent, a->rank * sizeof *a->extent) != 0)
        return INFINITY;
    for (unsigned i = 0; i < a->rank; i++)
        count *= a->extent[i];
    for (uint64_t i = 0; i < count; i++) {
        double x = a->data[i], y = b->data[i];
        if (isnan(x) || (isnan(y) && !native))
            continue;
        ++*compared;
        if (isfinite(x))
            scale = fmax(scale, fabs(x));
        if (x == y)
            continue;
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        largest = fmax(largest, fabs(x - y));
    }
    return largest <= FLOOR ? 0 : largest / scale;
}

static bool compare(const checker *c, uint32_t step, const ef_evaluation *e, unsigned root)
{
    char what[96];
    double worst = 0;
    uint32_t tensors = ef_evaluation_count(e, root);
    if (tensors != ef_evaluation_count(e, root + 1))
        return refuse(c, step, "the two sides have different coordinates");
    for (uint32_t i = 0; i < tensors; i++)
        worst = fmax(worst, difference(ef_evaluation_at(e, root, i), ef_evaluation_at(e, root + 1, i),
                                       !c->syntactic[step], &c->compared[step]));
    if (worst <= TOLERANCE)
        return true;
    snprintf(what, sizeof what, "the two sides evaluate to different numbers, by %.3g", worst);
    return refuse(c, step, what);
}

static draw draw_of(uint64_t seed)
{
    if (seed > SEEDS)
        return (draw)(DRAW_ZEROS + seed % 3);
    return seed == SEEDS ? DRAW_POSITIVE : DRAW_NORMAL;
}

static sample sample_of(const checker *c, uint64_t seed)
{
    return (sample){.c = c, .rng = {seed}, .seed = seed * UINT64_C(0x2545f4914f6cdd1d), .draw = draw_of(seed)};
}

/* One step at sizes that satisfy its own dependencies. A step whose rule is data, and which was checked as its
 * instance, need not be evaluated where a dimension that keeps its extent makes it too large; any other failure of the
 * evaluator is one of the step. */
static bool check_alone(const checker *c, uint32_t step, uint64_t seed)
{
    ef_diag why = {0};
    const ef_expr roots[] = {c->proof->step[step].before, c->proof->step[step].after};
    sample s = sample_of(c, seed);
    ef_resizing *sizes = ef_resizing_new(c->ctx);
    ef_resizing_read(sizes, c->dag, roots, 2);
    ef_tiling tiling = random_sizes(c, sizes, &s.rng);
    ef_evaluation *e = ef_evaluate(c->dag, roots, 2, &tiling, fill, &s, ELEMENT_LIMIT, &why);
    bool same =
        e ? compare(c, step, e, 0) : (c->syntactic[step] && why.kind == EF_TOO_LARGE) || refuse(c, step, why.text);
    ef_evaluation_free(e);
    ef_resizing_restore(sizes);
    ef_resizing_free(sizes);
    free((void *)tiling.tiles);
    return same;
}

typedef struct {
    EF_VEC(ef_expr) roots; /* the sides of the steps */
    EF_VEC(uint32_t) steps;
} selection;

/* The steps whose numbers are looked at: in stretches, native ones alone. */
static selection select_steps(const checker *c, bool native)
{
    selection all = {0};
    for (uint32_t i = 0; i < c->proof->steps; i++)
        if (!c->syntactic[i] || (!native && !speaks_of_extents(c, i))) {
            ef_vec_push(&all.roots, c->proof->step[i].before);
            ef_vec_push(&all.roots, c->proof->step[i].after);
            ef_vec_push(&all.steps, i);
        }
    return all;
}

/* All steps in one evaluation, where they fit into one: they share most terms. */
static bool check_together(const checker *c, const selection *all, uint64_t seed, ef_evaluation **e)
{
    sample s = sample_of(c, seed);
    ef_resizing *sizes = ef_resizing_new(c->ctx);
    ef_resizing_read(sizes, c->dag, all->roots.at, all->roots.count);
    ef_tiling tiling = random_sizes(c, sizes, &s.rng);
    *e = ef_evaluate(c->dag, all->roots.at, all->roots.count, &tiling, fill, &s, ELEMENT_LIMIT, NULL);
    ef_resizing_restore(sizes);
    ef_resizing_free(sizes);
    free((void *)tiling.tiles);
    bool same = true;
    for (uint32_t i = 0; *e && i < all->steps.count && same; i++)
        same = compare(c, all->steps.at[i], *e, 2 * i);
    return same;
}

static bool check_numbers(const checker *c, uint64_t seed)
{
    selection all = select_steps(c, seed > SEEDS);
    ef_evaluation *e = NULL;
    bool same = all.steps.count == 0 || check_together(c, &all, seed, &e);
    for (uint32_t i = 0; !e && i < all.steps.count && same; i++)
        same = check_alone(c, all.steps.at[i], seed);
    ef_evaluation_free(e);
    ef_vec_free(&all.roots);
    ef_vec_free(&all.steps);
    return same;
}

static bool check_all_numbers(const checker *c)
{
    bool fine = true;
    for (uint64_t seed = 1; seed <= SEEDS + STRETCH_SEEDS && fine; seed++)
        fine = check_numbers(c, seed);
    for (uint32_t i = 0; i < c->proof->steps && fine; i++)
        if (!c->syntactic[i] && c->compared[i] == 0)
            fine = refuse(c, i, "no number of the two sides could be compared");
    return fine;
}

/* ---- 3. congruence closure ---- */

static ef_expr root_of(ef_expr *parent, ef_expr e)
{
    while (parent[e] != e) {
        parent[e] = parent[parent[e]];
        e = parent[e];
    }
    return e;
}

/* One pass over all terms: those with equal operators, attributes and operand classes are one. Returns whether
 * something changed. */
static bool close_once(const checker *c, ef_expr *parent)
{
    ef_intern *table = ef_intern_new();
    EF_VEC(ef_expr) first = {0}; /* by signature */
    bool changed = false;
    ef_vec_reserve(&first, ef_dag_count(c->dag));
    for (ef_expr e = 0; e < ef_dag_count(c->dag); e++) {
        struct {
            uint64_t attr;
            uint32_t op;
            ef_expr child[EF_MAX_CHILDREN + 1];
        } key = {.attr = ef_dag_attr(c->dag, e), .op = ef_dag_op(c->dag, e)};
        const ef_expr *child;
        int fresh;
        unsigned n = ef_dag_children(c->dag, e, &child);
        for (unsigned i = 0; i < n; i++)
            key.child[i] = root_of(parent, child[i]);
        if (n == 2 && key.child[0] > key.child[1] && ef_op_commutative(key.op)) {
            ef_expr t = key.child[0];
            key.child[0] = key.child[1];
            key.child[1] = t;
        }
        uint32_t at = ef_intern_put(table, &key, offsetof(__typeof__(key), child) + n * sizeof *child, &fresh);
        if (fresh)
            ef_vec_push(&first, e);
        ef_expr a = root_of(parent, e), b = root_of(parent, first.at[at]);
        changed = changed || a != b;
        parent[a] = b;
    }
    ef_vec_free(&first);
    ef_intern_free(table);
    return changed;
}

static bool check_claim(const checker *c)
{
    const ef_proof *p = c->proof;
    uint32_t count = ef_dag_count(c->dag);
    if (p->from >= count || p->to >= count)
        return ef_fail(c->diag, "the claim names a term that does not exist");
    ef_expr *parent = ef_xcalloc(count, sizeof *parent);
    for (ef_expr e = 0; e < count; e++)
        parent[e] = e;
    for (uint32_t i = 0; i < p->steps; i++)
        parent[root_of(parent, p->step[i].after)] = root_of(parent, p->step[i].before);
    while (close_once(c, parent) && root_of(parent, p->from) != root_of(parent, p->to))
        continue;
    bool follows = root_of(parent, p->from) == root_of(parent, p->to);
    free(parent);
    return follows || ef_fail(c->diag, "the claim does not follow from the steps");
}

bool ef_proof_check(const ef_proof *proof, const ef_ruleset *rules, ef_diag *diag)
{
    ef_diag own = {0};
    checker c = {.proof = proof,
                 .rules = rules,
                 .ctx = ef_dag_ctx(proof->dag),
                 .dag = proof->dag,
                 .syntactic = ef_xcalloc(proof->steps + 1, 1),
                 .compared = ef_xcalloc(proof->steps + 1, sizeof *c.compared),
                 .diag = diag ? diag : &own};
    bool fine = true;
    find_constants(&c);
    for (uint32_t i = 0; i < proof->steps && fine; i++)
        fine = check_step(&c, i);
    fine = fine && check_all_numbers(&c) && check_claim(&c);
    free(c.is_constant);
    free(c.constant);
    free(c.syntactic);
    free(c.compared);
    return fine;
}

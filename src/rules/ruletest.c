/* The property test of rules: see ruletest.h.
 *
 * Every instance that the rule applies to (instances.h) is evaluated twice in float64, with random tilings:
 *
 * - on standard normal inputs both sides must agree to 1e-9;
 * - on large inputs, inputs with -inf masks, and tiny and zero inputs they must agree up to the rounding of the largest
 *   intermediate value, so that honest cancellation passes.
 *
 * In all of them the right side must be finite wherever the left side is: a form that overflows where the original did
 * not is caught. Where the left side is undefined (0/0, inf - inf) the right side may be anything. Masks stand in sums
 * and maxima; they are not multiplied, where 0 * inf would make nearly everything undefined.
 *
 * An ill-typed right side, or one of another type, is a failure too, unless the rule says same_type. So is a rule for
 * which not enough instances can be built: it may be one that never applies.
 *
 * A rule whose right side a builder makes (fuse-repair) is applied in an e-graph, and what it built is read back. Its
 * instances say whether there is a right side: finding none where there is one fails as finding one where there is
 * none. Their masks leave no row without a number, but tiles, and the rounding they may cause is that of the left side.
 *
 * The scalar rules of the repair prover speak of real numbers where everything is defined: they are tested on positive
 * arguments of moderate size only, because mul(x, recip(x)) = 1 and its like hold nowhere else. */
#include "rules/ruletest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/eval.h"
#include "rules/instances.h"
#include "support/vec.h"

#define TRIES_PER_INSTANCE 400u
#define EVALUATION_LIMIT (UINT64_C(1) << 17)
#define MAX_TILES 64

typedef enum { NORMAL, LARGE, MASKED, TINY } distribution;
static const char *const distribution_names[] = {"normal", "large", "masked", "tiny and zero"};

typedef struct {
    const ef_instance *instance;
    distribution kind;
    uint64_t seed;
} data_source;

typedef enum { HOLDS, FAILS, USELESS } verdict;

/* ---- input data ---- */

static double draw_value(const data_source *source, ef_dtype dtype, bool masks, ef_rng *rng)
{
    double normal = ef_rng_normal(rng), unit = ef_rng_unit(rng);
    bool builder = source->instance->rule->builder != NULL;
    if (dtype == EF_BOOL)
        return unit < 0.5;
    if (dtype == EF_I32 || dtype == EF_I64) /* sums of these are no zeros to divide by */
        return 1 + floor(unit * (source->kind == LARGE ? 1000 : 5));
    if (source->instance->draw.scalar)
        return 0.2 + 2.8 * unit;
    switch (source->kind) {
    case NORMAL: return normal;
    case LARGE: return normal * pow(10, (builder ? 3 : 6) * unit);
    case MASKED: return masks && unit < 0.4 ? -INFINITY : normal;
    case TINY: return unit < 0.5 ? 0 : normal * pow(10, -60 * (unit - 0.5));
    }
    return normal;
}

/* The masks of a builder's instance stand at positions along one dimension: scattered, all but one, or all on one side
 * of it, so that whole tiles are masked. That one position is the same in all inputs and never masked: a row that is
 * masked out altogether has no meaning. Conditions always mask, other inputs where the distribution says so. */
static void put_masks(const data_source *source, const ef_type_info *type, ef_rng *rng, ef_tensor *out)
{
    const ef_masks *masks = &source->instance->masks;
    bool condition = type->dtype == EF_BOOL;
    uint64_t stride = 1, extent = 0, count = 1;
    if (!condition && source->kind != MASKED)
        return;
    for (unsigned i = 0; i < type->rank; i++) { /* from the last */
        if (type->dim[i] == masks->dim)
            extent = ef_dim_extent(source->instance->draw.ctx, masks->dim);
        stride *= extent ? 1 : ef_dim_extent(source->instance->draw.ctx, type->dim[i]);
        count *= ef_dim_extent(source->instance->draw.ctx, type->dim[i]);
    }
    if (extent == 0)
        return;
    uint64_t kept = source->seed % extent;
    uint32_t style = ef_rng_below(rng, 4);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i / stride % extent;
        bool scattered = ef_rng_below(rng, 5) < 2;
        bool mask = at != kept && (style == 0 ? at < kept : style == 1 ? at > kept : style == 2 || scattered);
        if (condition)
            out->data[i] = !mask;
        else if (mask)
            out->data[i] = masks->value;
    }
}

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    const data_source *source = user;
    const ef_type_info *type = ef_type_at(source->instance->draw.ctx, ef_input_type(source->instance->draw.ctx, input));
    ef_rng rng = {source->seed + input * UINT64_C(0x9e3779b97f4a7c15)};
    bool masks = !source->instance->rule->builder && ef_rng_below(&rng, 2) == 0, all = ef_rng_below(&rng, 8) == 0;
    uint64_t count = 1;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++) {
        out->data[i] = draw_value(source, (ef_dtype)type->dtype, masks, &rng);
        if (source->kind == MASKED && masks && all && type->dtype >= EF_F16) /* rows that are masked out altogether */
            out->data[i] = -INFINITY;
    }
    if (source->instance->masks.inputs >> input & 1u)
        put_masks(source, type, &rng, out);
}

/* ---- tilings ---- */

typedef struct {
    ef_tile tile[MAX_TILES];
    ef_tiling tiling;
} tile_choice;

/* A tile extent for every axis of every variable, from 1 to one more than the variable has. Short last blocks may have
 * empty tiles; but not with zero inputs, where a sum over nothing of 0/0 would be defined. */
static void draw_tiling(ef_instance *x, distribution kind, tile_choice *choice)
{
    choice->tiling = (ef_tiling){.tiles = choice->tile, .fallback = 2};
    for (ef_var v = 0; v < ef_var_count(x->draw.ctx) && choice->tiling.count + 2 <= MAX_TILES; v++) {
        uint32_t extent = (uint32_t)ef_var_at(x->draw.ctx, v)->extent;
        uint32_t block = 1 + ef_draw_below(&x->draw, extent + 1), tile = 1 + ef_draw_below(&x->draw, extent + 1);
        if (kind == TINY && tile < block)
            tile = block;
        choice->tile[choice->tiling.count++] = (ef_tile){ef_axis_of(v, 0), block};
        choice->tile[choice->tiling.count++] = (ef_tile){ef_axis_of(v, 1), tile};
    }
}

/* ---- comparing ---- */

static uint64_t volume(const ef_tensor *t)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < t->rank; i++)
        product *= t->extent[i];
    return product;
}

/* The largest finite magnitude among the roots: what rounding is relative to. */
static double largest_magnitude(const ef_evaluation *e, unsigned roots)
{
    double largest = 0;
    for (unsigned r = 0; r < roots; r++)
        for (uint32_t i = 0, n = ef_evaluation_count(e, r); i < n; i++) {
            const ef_tensor *t = ef_evaluation_at(e, r, i);
            for (uint64_t k = 0, size = volume(t); k < size; k++)
                if (isfinite(t->data[k]))
                    largest = fmax(largest, fabs(t->data[k]));
        }
    return largest;
}

static bool any_finite(const ef_evaluation *e, unsigned root)
{
    for (uint32_t i = 0, n = ef_evaluation_count(e, root); i < n; i++) {
        const ef_tensor *t = ef_evaluation_at(e, root, i);
        for (uint64_t k = 0, size = volume(t); k < size; k++)
            if (isfinite(t->data[k]))
                return true;
    }
    return false;
}

/* What the right side has to be where the left side is `left`: finite and close where that is finite, not finite where
 * it is not, and never the other infinity. */
static double element_error(double left, double right)
{
    if (left == right)
        return 0;
    if (isfinite(left))
        return isfinite(right) ? fabs(left - right) : INFINITY;
    return isnan(right) || (isnan(left) && isinf(right)) ? 0 : INFINITY;
}

static double difference(const ef_evaluation *e, double scale)
{
    double largest = 0;
    if (ef_evaluation_count(e, 0) != ef_evaluation_count(e, 1))
        return INFINITY;
    for (uint32_t i = 0, n = ef_evaluation_count(e, 0); i < n; i++) {
        const ef_tensor *l = ef_evaluation_at(e, 0, i), *r = ef_evaluation_at(e, 1, i);
        if (volume(l) != volume(r))
            return INFINITY;
        for (uint64_t k = 0, size = volume(l); k < size; k++)
            largest = fmax(largest, element_error(l->data[k], r->data[k]));
    }
    return largest / (1 + scale);
}

/* ---- one instance ---- */

typedef struct {
    distribution kind;
    tile_choice tiles;
    double difference;
    ef_diag diag;
} finding;

/* Evaluates both sides, as roots 0 and 1, and, but for normal inputs, all that they are made of, for its magnitude. */
static verdict evaluate(ef_instance *x, distribution kind, finding *found)
{
    ef_dag *dag = x->draw.dag;
    EF_VEC(ef_expr) roots = {0};
    ef_vec_push(&roots, x->left);
    ef_vec_push(&roots, x->right);
    /* what a builder makes must not blow up: its own values say nothing of the magnitude */
    uint32_t terms = x->rule->builder ? x->left : ef_dag_count(dag);
    for (ef_expr e = 0; kind != NORMAL && e < terms; e++)
        ef_vec_push(&roots, e);
    data_source source = {x, kind, ef_rng_next(&x->draw.rng)};
    *found = (finding){.kind = kind};
    draw_tiling(x, kind, &found->tiles);
    ef_evaluation *e =
        ef_evaluate(dag, roots.at, roots.count, &found->tiles.tiling, fill, &source, EVALUATION_LIMIT, &found->diag);
    verdict result = HOLDS;
    if (!e) {
        result = strstr(found->diag.text, "exceed the limit") ? USELESS : FAILS;
    } else {
        found->difference = difference(e, largest_magnitude(e, roots.count));
        bool holds = found->difference <= (kind == NORMAL ? 1e-9 : 1e-6);
        result = !holds ? FAILS : any_finite(e, 0) ? HOLDS : USELESS;
    }
    ef_evaluation_free(e);
    ef_vec_free(&roots);
    return result;
}

/* Whether the instance has an operator in which an infinity and a zero are undefined. */
static bool multiplies(const ef_instance *x)
{
    for (ef_expr e = 0; e < ef_dag_count(x->draw.dag); e++)
        switch (ef_dag_op(x->draw.dag, e)) {
        case EF_MUL:
        case EF_DIV:
        case EF_MATMUL:
        case EF_TILE_MATMUL: return true;
        default: break;
        }
    return false;
}

static verdict test_instance(ef_instance *x, finding *found)
{
    verdict result = evaluate(x, NORMAL, found);
    for (int kind = LARGE; kind <= TINY && result == HOLDS && !x->draw.scalar; kind++) {
        if (kind == MASKED && !x->rule->builder && multiplies(x))
            continue;
        result = evaluate(x, (distribution)kind, found);
        if (result == USELESS)
            result = HOLDS;
    }
    return result;
}

/* ---- showing an instance ---- */

static void print_side(const ef_instance *x, const char *label, ef_expr e, ef_strbuf *out)
{
    ef_strbuf_printf(out, "  %s ", label);
    if (e == EF_NONE) {
        ef_strbuf_puts(out, "(ill-typed)\n");
        return;
    }
    ef_expr_print(x->draw.dag, e, out);
    ef_strbuf_puts(out, " : ");
    ef_type_print(x->draw.ctx, ef_dag_type(x->draw.dag, e), out);
    ef_strbuf_puts(out, "\n");
}

static void print_inputs(const ef_instance *x, ef_strbuf *out)
{
    for (uint32_t i = 0; i < x->draw.inputs; i++) {
        ef_strbuf_printf(out, "%s%s: ", i ? "; " : "  where ", ef_input_name(x->draw.ctx, i));
        ef_type_print(x->draw.ctx, ef_input_type(x->draw.ctx, i), out);
    }
    ef_strbuf_puts(out, x->draw.inputs ? "\n" : "");
}

static void print_sizes(const ef_instance *x, const ef_tiling *tiling, ef_strbuf *out)
{
    const ef_axis *axes;
    ef_axes used = 0;
    for (ef_expr e = 0; e < ef_dag_count(x->draw.dag); e++)
        used = ef_axes_union(x->draw.ctx, used, ef_type_axes(x->draw.ctx, ef_dag_type(x->draw.dag, e)));
    ef_strbuf_puts(out, "  sizes");
    for (unsigned i = 0; i < EF_DRAW_VARS; i++) {
        ef_strbuf_puts(out, " ");
        ef_var_print(x->draw.ctx, x->draw.pool[i], out);
        ef_strbuf_printf(out, "=%" PRIu64, ef_var_at(x->draw.ctx, x->draw.pool[i])->extent);
    }
    unsigned n = ef_axes_at(x->draw.ctx, used, &axes);
    ef_strbuf_puts(out, n && tiling ? ", tiles" : "");
    for (unsigned i = 0; tiling && i < n; i++)
        for (unsigned t = 0; t < tiling->count; t++)
            if (tiling->tiles[t].axis == axes[i]) {
                ef_strbuf_puts(out, " ");
                ef_axis_print(x->draw.ctx, axes[i], out);
                ef_strbuf_printf(out, "=%" PRIu64, tiling->tiles[t].extent);
            }
    ef_strbuf_puts(out, "\n");
}

static void print_failure(const ef_instance *x, ef_instance_kind kind, const finding *found, ef_strbuf *out)
{
    bool typed = kind == EF_INSTANCE_APPLIES;
    if (kind == EF_INSTANCE_LOST)
        ef_strbuf_printf(out, "%s: no right side is found where there is one\n", x->rule->name);
    else if (kind == EF_INSTANCE_WRONG)
        ef_strbuf_printf(out, "%s: a right side is found where there is none\n", x->rule->name);
    else if (!typed && x->right == EF_NONE)
        ef_strbuf_printf(out, "%s: the right side is ill-typed: %s\n", x->rule->name, found->diag.text);
    else if (!typed)
        ef_strbuf_printf(out, "%s: the right side has another type\n", x->rule->name);
    else if (found->diag.failed)
        ef_strbuf_printf(out, "%s: %s\n", x->rule->name, found->diag.text);
    else
        ef_strbuf_printf(out, "%s: the sides differ by %.3g on %s inputs\n", x->rule->name, found->difference,
                         distribution_names[found->kind]);
    print_side(x, "left ", x->left, out);
    print_side(x, "right", x->right, out);
    print_inputs(x, out);
    print_sizes(x, typed ? &found->tiles.tiling : NULL, out);
    if (kind == EF_INSTANCE_ILL_TYPED)
        ef_strbuf_puts(out, "  a rule that applies only where the types agree says same_type\n");
}

/* ---- one rule ---- */

typedef struct {
    unsigned wanted, applied, failing, tries;
    unsigned kinds[EF_INSTANCE_KINDS];
    uint32_t smallest; /* nodes of the instance that `failure` shows */
    ef_strbuf failure;
} progress;

/* Keeps the smallest of the failing instances. */
static void keep_failure(progress *p, const ef_instance *x, ef_instance_kind kind, const finding *found)
{
    uint32_t size = ef_dag_count(x->draw.dag);
    if (p->failing++ && size >= p->smallest)
        return;
    p->smallest = size;
    ef_strbuf_free(&p->failure);
    p->failure = (ef_strbuf){0};
    print_failure(x, kind, found, &p->failure);
}

static void try_seed(progress *p, const ef_rule *rule, uint64_t seed)
{
    ef_instance x;
    finding found = {0};
    ef_instance_kind kind = ef_instance_draw(&x, rule, seed, &found.diag);
    p->tries++;
    p->kinds[kind]++;
    if (kind > EF_INSTANCE_APPLIES) {
        keep_failure(p, &x, kind, &found);
    } else if (kind == EF_INSTANCE_APPLIES) {
        verdict result = test_instance(&x, &found);
        p->applied += result != USELESS;
        if (result == FAILS)
            keep_failure(p, &x, kind, &found);
    }
    ef_instance_free(&x);
}

static bool check_rule(const ef_rule *rule, unsigned instances, uint64_t seed, progress *p)
{
    ef_rng rng = {seed ^ ef_hash(rule->name, strlen(rule->name))};
    *p = (progress){.wanted = instances};
    while (p->applied < instances && p->tries < TRIES_PER_INSTANCE * instances && p->failing < instances)
        try_seed(p, rule, ef_rng_next(&rng));
    if (p->failing)
        ef_strbuf_printf(&p->failure, "  the smallest of %u failing instances, of %u\n", p->failing, p->applied);
    else if (p->applied < instances)
        ef_strbuf_printf(
            &p->failure,
            "%s: only %u of %u instances could be built in %u tries (ill-typed left side %u, condition %u, "
            "type of right side %u, both sides the same %u, refused %u): the rule may never apply\n",
            rule->name, p->applied, instances, p->tries, p->kinds[EF_INSTANCE_NONE], p->kinds[EF_INSTANCE_CONDITION],
            p->kinds[EF_INSTANCE_TYPE], p->kinds[EF_INSTANCE_SAME], p->kinds[EF_INSTANCE_REFUSED]);
    return p->failure.length == 0;
}

bool ef_rules_check(const ef_ruleset *set, unsigned instances, uint64_t seed, ef_rulecheck *out, ef_rulecheck_fn report,
                    void *user)
{
    ef_rulecheck sum = {0};
    for (uint32_t i = 0; i < set->rules.count; i++) {
        const ef_rule *rule = &set->rules.at[i];
        progress p;
        bool holds = check_rule(rule, instances, seed, &p);
        sum.rules++;
        sum.failures += !holds;
        sum.instances += p.applied;
        if (report)
            report(user, rule, holds ? NULL : p.failure.text, p.applied);
        ef_strbuf_free(&p.failure);
    }
    if (out)
        *out = sum;
    return sum.failures == 0;
}

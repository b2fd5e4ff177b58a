/* Schedules as data: what each parameter is called, which values it may take, and the first guess.
 *
 * A parameter that a backend does not use has one value, so a tuner that knows nothing of kinds never varies it. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "kernel/guess.h"

/* ---- names ---- */

static const char *const kind_names[EF_PARAM_KINDS] = {[EF_PARAM_WARPS] = "warps",     [EF_PARAM_STAGES] = "stages",
                                                       [EF_PARAM_UNIT] = "unit",       [EF_PARAM_LOAD] = "load",
                                                       [EF_PARAM_GROUP] = "group",     [EF_PARAM_ORDER] = "order",
                                                       [EF_PARAM_PERSIST] = "persist", [EF_PARAM_OVERLAP] = "overlap"};

static void print_kind(const ef_kgraph *g, const ef_kparam *param, ef_strbuf *out)
{
    if (param->kind == EF_PARAM_TILE)
        ef_axis_print(g->ctx, param->axis, out);
    else
        ef_strbuf_puts(out, kind_names[param->kind]);
}

void ef_schedule_name(const ef_kgraph *g, uint32_t param, ef_strbuf *out)
{
    const ef_kparam *p = &g->params.at[param];
    if (p->kernel != EF_NONE)
        ef_strbuf_printf(out, "k%" PRIu32 ".", p->kernel);
    print_kind(g, p, out);
}

static bool read_kind(const char *name, size_t length, ef_param_kind *kind)
{
    for (unsigned i = EF_PARAM_TILE + 1; i < EF_PARAM_KINDS; i++)
        if (strlen(kind_names[i]) == length && memcmp(name, kind_names[i], length) == 0) {
            *kind = (ef_param_kind)i;
            return true;
        }
    *kind = EF_PARAM_TILE;
    return length > 2 && name[length - 2] == '.' && (name[length - 1] == '0' || name[length - 1] == '1');
}

bool ef_schedule_read_name(const char *name, unsigned length, ef_param_kind *kind, uint32_t *kernel)
{
    const char *end = name + length, *at = name + 1;
    uint64_t number = 0;
    while (at < end && isdigit((unsigned char)*at))
        number = ef_sched_times(number, 10) + (uint64_t)(*at++ - '0');
    if (length && name[0] == 'k' && at > name + 1 && at < end && *at == '.' &&
        read_kind(at + 1, (size_t)(end - at - 1), kind)) {
        *kernel = number < EF_NONE ? (uint32_t)number : EF_NONE - 1;
        return true;
    }
    *kernel = EF_NONE;
    return read_kind(name, length, kind);
}

/* Whether a parameter has this name, in full or without its kernel. */
static bool has_name(const ef_kgraph *g, uint32_t param, const char *name, unsigned length)
{
    ef_strbuf full = {0}, brief = {0};
    ef_schedule_name(g, param, &full);
    print_kind(g, &g->params.at[param], &brief);
    bool has = (full.length == length && memcmp(full.text, name, length) == 0) ||
               (brief.length == length && memcmp(brief.text, name, length) == 0);
    ef_strbuf_free(&full);
    ef_strbuf_free(&brief);
    return has;
}

bool ef_schedule_set(const ef_kgraph *g, ef_schedule *schedule, const char *name, unsigned length, uint64_t value)
{
    bool found = false;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (has_name(g, i, name, length)) {
            schedule->value[i] = value;
            found = true;
        }
    return found;
}

/* ---- legal values ---- */

/* What parameters of a kind may be, ascending; the first value is that of kernels that have no use for it. None for
 * tiles, whose extents are free. */
static unsigned kind_values(ef_backend backend, ef_param_kind kind, const uint64_t **value)
{
    static const uint64_t warps[] = {1, 2, 4, 8, 16}, stages[] = {1, 2, 3, 4, 5, 6, 7, 8}, either[] = {0, 1},
                          group[] = {1, 2, 4, 8, 16}, persist[] = {0, 1, 2, 4},
                          begin[EF_BEGINS] = {EF_BEGIN_AFTER, EF_BEGIN_EARLY, EF_BEGIN_EARLY_EVENLY, EF_BEGIN_LATE,
                                              EF_BEGIN_LATE_EVENLY};
    static const struct {
        const uint64_t *value;
        unsigned count;
    } of[EF_PARAM_KINDS] = {
        [EF_PARAM_TILE] = {either, 0},  [EF_PARAM_WARPS] = {warps, 5},     [EF_PARAM_STAGES] = {stages, 8},
        [EF_PARAM_UNIT] = {either, 2},  [EF_PARAM_LOAD] = {either, 2},     [EF_PARAM_GROUP] = {group, 5},
        [EF_PARAM_ORDER] = {either, 2}, [EF_PARAM_PERSIST] = {persist, 4}, [EF_PARAM_OVERLAP] = {begin, EF_BEGINS}};
    *value = backend == EF_BACKEND_TRITON ? of[kind].value : either;
    return backend == EF_BACKEND_TRITON || kind == EF_PARAM_TILE ? of[kind].count : 1;
}

bool ef_schedule_legal(ef_backend backend, ef_param_kind kind, uint64_t value)
{
    const uint64_t *legal;
    unsigned count = kind_values(backend, kind, &legal);
    bool among = kind == EF_PARAM_TILE && value >= 1 && value <= EF_MAX_EXTENT;
    for (unsigned i = 0; i < count; i++)
        among = among || legal[i] == value;
    return among;
}

void ef_schedule_print_legal(ef_backend backend, ef_param_kind kind, ef_strbuf *out)
{
    const uint64_t *legal;
    unsigned count = kind_values(backend, kind, &legal);
    if (kind == EF_PARAM_TILE)
        ef_strbuf_printf(out, "whole numbers from 1 to %" PRIu64, EF_MAX_EXTENT);
    for (unsigned i = 0; i < count; i++)
        ef_strbuf_printf(out, "%s%" PRIu64, i == 0 ? "" : i + 1 < count ? ", " : " or ", legal[i]);
}

/* ---- domains ---- */

/* Powers of two below the extent, up to `most`, and the extent itself unless it is more. */
static unsigned powers(uint64_t extent, uint64_t least, uint64_t most, uint64_t value[EF_SCHEDULE_VALUES])
{
    unsigned n = 0;
    for (uint64_t v = least < extent ? least : extent; v < extent && v <= most && n + 1 < EF_SCHEDULE_VALUES; v *= 2)
        value[n++] = v;
    if (n == 0 || extent <= most)
        value[n++] = extent;
    return n;
}

/* Whether tiles along the axis are walked along by an inner loop: then their size costs no registers. */
static bool is_divided(const ef_kgraph *g, uint32_t param)
{
    bool used = false;
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        const ef_kernel *k = g->kernels.at[i];
        for (uint32_t at = 0; at < k->iters.count; at++) {
            bool inner = false;
            if (k->iters.at[at].kind == EF_ITER_PICK || k->iters.at[at].param != param)
                continue;
            for (uint32_t other = 0; other < k->iters.count; other++)
                inner = inner || k->iters.at[other].outer == at;
            if (!inner)
                return false;
            used = true;
        }
    }
    return used;
}

#define LEAST_OF_PRODUCT 16u /* elements: the matrix unit takes no fewer */
#define FEW 64u              /* rows or columns: otherwise there would be few blocks, so these may have … */
#define LEAST_OF_FEW 4u      /* … so many columns, or one row */

/* Elements of a dimension for each position of its first variable, along which it is cut. */
static uint64_t elements_of_each(const ef_kgraph *g, ef_dim dim)
{
    const ef_var *atom;
    uint64_t product = 1;
    for (unsigned i = 1, n = ef_dim_atoms(g->ctx, dim, &atom); i < n; i++)
        product *= ef_var_at(g->ctx, atom[i])->extent ? ef_var_at(g->ctx, atom[i])->extent : 1;
    return product;
}

/* The least extent that tiles along the axis are tried with, where they are rows, columns or the inside of a product,
 * and of no product a batch; 0: they are not. */
static uint64_t least_of_product(const ef_kgraph *g, uint32_t param)
{
    uint64_t least = 0;
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        const ef_kernel *k = g->kernels.at[i];
        for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
            const ef_knode *n = ef_kernel_node(k, id);
            if (n->op != EF_TILE_MATMUL)
                continue;
            const ef_kdim of[] = {n->dim[0], ef_kernel_node(k, n->child[0])->dim[0], n->dim[1]};
            for (unsigned c = 0; c < 3; c++) {
                if (of[c].cut == EF_NONE || k->iters.at[of[c].cut].param != param)
                    continue;
                bool few = c != 1 && ef_dim_extent(g->ctx, of[c].dim) <= FEW;
                uint64_t elements = !few ? LEAST_OF_PRODUCT : c == 2 ? 1 : LEAST_OF_FEW;
                uint64_t each = elements_of_each(g, of[c].dim), own = (elements + each - 1) / each;
                least = own > least ? own : least;
            }
            for (unsigned d = 2; d < n->rank; d++)
                if (n->dim[d].cut != EF_NONE && k->iters.at[n->dim[d].cut].param == param)
                    return 0;
        }
    }
    return least;
}

#define MOST_TILE 8192u  /* along one axis, in registers */
#define LEAST_STORED 16u /* along an axis whose tiles shape a buffer */

static unsigned tiles(const ef_kgraph *g, ef_backend backend, uint32_t param, uint64_t value[EF_SCHEDULE_VALUES])
{
    const ef_kparam *p = &g->params.at[param];
    uint64_t extent = ef_var_at(g->ctx, ef_axis_var(p->axis))->extent;
    if (backend == EF_BACKEND_C)
        return powers(extent, 1, EF_MAX_EXTENT, value);
    uint64_t least = p->kernel == EF_NONE ? LEAST_STORED : least_of_product(g, param);
    return powers(extent, least ? least : 1, is_divided(g, param) ? EF_MAX_EXTENT : MOST_TILE, value);
}

/* Whether it has a product that a matrix unit may compute. */
static bool suits_unit(const ef_kernel *k)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (ef_kernel_node(k, id)->op == EF_TILE_MATMUL && ef_kernel_node(k, id)->dtype != EF_F64)
            return true;
    return false;
}

/* Whether a GPU kernel has a use for what it has besides tiles. */
static bool is_open(const ef_kernel *k, ef_param_kind kind)
{
    switch (kind) {
    case EF_PARAM_STAGES:
    case EF_PARAM_LOAD: return k->loops.count > 0;
    case EF_PARAM_UNIT: return suits_unit(k);
    case EF_PARAM_GROUP: return suits_unit(k) && k->grid > 1;
    case EF_PARAM_ORDER: return ef_kernel_is_uneven(k);
    case EF_PARAM_PERSIST: return k->grid > 0;
    default: return true;
    }
}

unsigned ef_schedule_domain(const ef_kgraph *g, ef_backend backend, uint32_t param, uint64_t value[EF_SCHEDULE_VALUES])
{
    const ef_kparam *p = &g->params.at[param];
    if (p->kind == EF_PARAM_TILE)
        return tiles(g, backend, param, value);
    const uint64_t *all;
    unsigned count = kind_values(backend, p->kind, &all);
    if (count > 1 && !is_open(g->kernels.at[p->kernel], p->kind))
        count = 1;
    memcpy(value, all, count * sizeof *value);
    return count;
}

ef_schedule ef_schedule_default(const ef_kgraph *graph, ef_backend backend, uint32_t units)
{
    return backend == EF_BACKEND_TRITON ? ef_guess_triton(graph, units) : ef_guess_c(graph, units);
}

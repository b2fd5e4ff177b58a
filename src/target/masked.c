/* Tiles of a loop in which a mask holds: see masked.h. */
#include "target/masked.h"

#include <math.h>
#include <string.h>

#include "kernel/holds.h"
#include "support/vec.h"

#define BLOCKS 32u /* tiles of the other variables that are looked at */
#define MOST_VISITS 50000u

/* Of a schedule: the tile of the loop, and those of the other variables. */
typedef struct {
    uint64_t tile[EF_HOLDS_VARS];
    double part;
} seen;

struct ef_masked {
    const ef_kgraph *g;
    const ef_kernel *k;
    const ef_kloop *loop;
    bool always; /* all of it is visited */
    ef_var var;  /* along which the loop goes */
    unsigned others;
    ef_var other[EF_HOLDS_VARS];
    uint32_t iter[EF_HOLDS_VARS]; /* that walk along these; EF_NONE: a block has all positions */
    EF_VEC(seen) known;
};

/* The iterator of the smallest tiles along a variable. */
static uint32_t innermost(const ef_kernel *k, ef_var var)
{
    uint32_t found = EF_NONE;
    for (uint32_t i = 0; i < k->iters.count; i++)
        if (k->iters.at[i].kind != EF_ITER_PICK && ef_axis_var(k->iters.at[i].axis) == var &&
            (found == EF_NONE || k->iters.at[i].outer != EF_NONE))
            found = i;
    return found;
}

ef_masked *ef_masked_new(const ef_kgraph *g, const ef_kernel *k, const ef_kloop *loop)
{
    ef_masked *m = ef_xcalloc(1, sizeof *m);
    ef_var var[EF_HOLDS_VARS];
    ef_positions at = {.graph = g, .most_visits = MOST_VISITS};
    m->g = g;
    m->k = k;
    m->loop = loop;
    m->always = k->iters.at[loop->iter].kind == EF_ITER_PICK || ef_loop_holds(&at, k, loop) == EF_HOLDS_ALWAYS;
    m->var = m->always ? EF_NONE : ef_axis_var(k->iters.at[loop->iter].axis);
    unsigned vars = m->always ? 0 : ef_loop_positions(g, k, loop, var);
    for (unsigned i = 0; i < vars && m->others + 1 < EF_HOLDS_VARS; i++)
        if (var[i] != m->var && innermost(k, var[i]) != EF_NONE) {
            m->iter[m->others] = innermost(k, var[i]);
            m->other[m->others++] = var[i];
        }
    m->always = m->always || vars == 0;
    return m;
}

void ef_masked_free(ef_masked *m)
{
    ef_vec_free(&m->known);
    free(m);
}

/* Tiles from `from` to `to`, without that, in which something may be seen: halves what is not the same everywhere. The
 * first span is the loop's. */
static uint64_t count_tiles(const ef_masked *m, ef_positions *at, uint64_t tile, uint64_t from, uint64_t to)
{
    double extent = (double)ef_var_at(m->g->ctx, m->var)->extent;
    at->span[0].from = (double)(from * tile);
    at->span[0].to = fmin((double)(to * tile), extent) - 1;
    ef_holds here = ef_loop_holds(at, m->k, m->loop);
    if (here == EF_HOLDS_NEVER)
        return 0;
    if (here == EF_HOLDS_ALWAYS || to - from == 1 || at->visits > at->most_visits)
        return to - from;
    uint64_t middle = from + (to - from) / 2;
    return count_tiles(m, at, tile, from, middle) + count_tiles(m, at, tile, middle, to);
}

static uint64_t tiles_along(const ef_masked *m, ef_var var, uint64_t tile)
{
    return (ef_var_at(m->g->ctx, var)->extent + tile - 1) / tile;
}

/* The i-th of so many positions between 0 and 1 along a variable: of the first one, one in each part; along others by
 * multiples of what is no fraction, so that positions of two are spread over all pairs. */
static double spread(unsigned i, unsigned count, unsigned variable)
{
    static const double root[EF_HOLDS_VARS] = {1.41421356237, 1.73205080757, 2.2360679775,  2.64575131106,
                                               3.31662479036, 3.60555127546, 4.12310562562, 4.35889894354};
    double whole, within = modf((i + 0.5) * root[variable], &whole);
    return variable ? within : (i + within) / count;
}

static double measure(const ef_masked *m, const uint64_t *tile)
{
    ef_positions at = {.graph = m->g, .spans = m->others + 1, .most_visits = MOST_VISITS};
    uint64_t all = tiles_along(m, m->var, tile[0]), met = 0;
    unsigned blocks = m->others ? BLOCKS : 1;
    if (m->others == 1 && tiles_along(m, m->other[0], tile[1]) < BLOCKS)
        blocks = (unsigned)tiles_along(m, m->other[0], tile[1]);
    at.span[0].var = m->var;
    for (unsigned i = 0; i < blocks; i++) {
        for (unsigned v = 0; v < m->others; v++) {
            uint64_t block = (uint64_t)(spread(i, blocks, v) * (double)tiles_along(m, m->other[v], tile[v + 1]));
            double from = (double)(block * tile[v + 1]), end = (double)ef_var_at(m->g->ctx, m->other[v])->extent;
            at.span[v + 1] = (ef_span){m->other[v], from, fmin(from + (double)tile[v + 1], end) - 1};
        }
        at.visits = 0;
        met += count_tiles(m, &at, tile[0], 0, all);
    }
    return (double)met / ((double)all * blocks);
}

double ef_masked_part(ef_masked *m, const ef_schedule *s)
{
    seen now = {.part = 1};
    if (m->always)
        return 1;
    now.tile[0] = ef_sched_tile(m->g, s, m->k, m->loop->iter);
    for (unsigned v = 0; v < m->others; v++)
        now.tile[v + 1] = ef_sched_tile(m->g, s, m->k, m->iter[v]);
    for (uint32_t i = 0; i < m->known.count; i++)
        if (memcmp(m->known.at[i].tile, now.tile, sizeof now.tile) == 0)
            return m->known.at[i].part;
    now.part = measure(m, now.tile);
    ef_vec_push(&m->known, now);
    return now.part;
}

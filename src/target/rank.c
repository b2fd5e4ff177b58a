/* Static ranking by a linear program: see rank.h. */
#include "target/rank.h"

#include <glpk.h>
#include <math.h>

#include "support/vec.h"
#include "target/rank_terms.h"

#define NEGLIGIBLE 1e-3 /* microseconds, or parts of the room: no tangents below */
#define STEP 0.7        /* between tangents, in logarithms: the exponential is missed by 6 % at most */
#define ROWS 60000      /* of the linear program, at most */

typedef struct {
    const ef_kgraph *g;
    const ef_target *target;
    glp_prob *lp;
    int *column;  /* by parameter: its logarithm; 0: it is no tile */
    double *most; /* by parameter: the largest logarithm */
    int *time;    /* by kernel */
    int index[EF_RANK_PARAMS + 8];
    double value[EF_RANK_PARAMS + 8];
} program;

static int add_column(program *p, double least, double most, double cost)
{
    int column = glp_add_cols(p->lp, 1);
    int kind = least == most ? GLP_FX : isinf(most) ? GLP_LO : GLP_DB;
    glp_set_col_bnds(p->lp, column, kind, least, most);
    glp_set_obj_coef(p->lp, column, cost);
    return column;
}

/* The first `count` entries of index and value, at least `least`. */
static void add_row(program *p, int count, double least)
{
    int row = glp_add_rows(p->lp, 1);
    glp_set_row_bnds(p->lp, row, GLP_LO, least, 0);
    glp_set_mat_row(p->lp, row, count, p->index, p->value);
}

static void entry(program *p, int *count, int column, double value)
{
    (*count)++;
    p->index[*count] = column;
    p->value[*count] = value;
}

/* ---- variables ---- */

/* The logarithms of tile extents. */
static void add_tiles(program *p)
{
    for (uint32_t i = 0; i < p->g->params.count; i++) {
        const ef_kparam *param = &p->g->params.at[i];
        if (param->kind != EF_PARAM_TILE)
            continue;
        p->most[i] = log((double)ef_var_at(p->g->ctx, ef_axis_var(param->axis))->extent);
        p->column[i] = add_column(p, 0, p->most[i], 0);
    }
}

/* What divides a block is no longer than the block. */
static void nest_tiles(program *p)
{
    for (uint32_t k = 0; k < p->g->kernels.count; k++) {
        const ef_kernel *kernel = p->g->kernels.at[k];
        for (uint32_t i = 0; i < kernel->iters.count; i++) {
            const ef_iter *iter = &kernel->iters.at[i];
            if (iter->kind == EF_ITER_PICK || iter->outer == EF_NONE)
                continue;
            uint32_t outer = kernel->iters.at[iter->outer].param;
            if (outer == iter->param)
                continue;
            int count = 0;
            entry(p, &count, p->column[outer], 1);
            entry(p, &count, p->column[iter->param], -1);
            add_row(p, count, 0);
        }
    }
}

/* ---- terms ---- */

/* The bounds of a term over all extents. */
static void range(const program *p, const ef_term *t, double *low, double *high)
{
    *low = *high = t->constant;
    for (uint32_t i = 0; i < p->g->params.count; i++) {
        double f = t->factor[i];
        *low += f < 0 ? f * p->most[i] : 0;
        *high += f > 0 ? f * p->most[i] : 0;
    }
}

/* A column that is at least exp(t), or 0 and a constant part. */
static int add_exponential(program *p, const ef_term *t, double *fixed)
{
    double low, high;
    range(p, t, &low, &high);
    if (high - low < 1e-9) {
        *fixed += exp(low);
        return 0;
    }
    if (exp(high) < NEGLIGIBLE)
        return 0;
    low = fmax(low, log(NEGLIGIBLE));
    int column = add_column(p, 0, INFINITY, 0);
    for (int i = 0, n = (int)ceil((high - low) / STEP); i <= n; i++) { /* column >= e^y (1 + t - y), divided by e^y */
        double y = low + i * STEP;
        int count = 0;
        entry(p, &count, column, exp(-y));
        for (uint32_t k = 0; k < p->g->params.count; k++)
            if (t->factor[k] != 0)
                entry(p, &count, p->column[k], -t->factor[k]);
        add_row(p, count, 1 + t->constant - y);
    }
    return column;
}

/* Rows of a kernel: its time is at least the sum of what is charged to each bound. */
static bool add_kernel(program *p, uint32_t kernel)
{
    ef_charges charges = {0};
    int *index = NULL, count[EF_BOUNDS] = {0};
    double *value = NULL, fixed[EF_BOUNDS] = {0};
    ef_rank_charges(p->g, kernel, p->target, &charges);
    p->time[kernel] = add_column(p, 0, INFINITY, 1);
    index = ef_xcalloc((size_t)charges.count + 2, sizeof *index);
    value = ef_xcalloc((size_t)charges.count + 2, sizeof *value);
    for (unsigned bound = 0; bound < EF_BOUNDS && glp_get_num_rows(p->lp) < ROWS; bound++) {
        bool room = bound == EF_BOUND_ROOM;
        if (!room) {
            index[1] = p->time[kernel];
            value[1] = 1;
            count[bound] = 1;
        }
        for (uint32_t i = 0; i < charges.count; i++) {
            int column = charges.at[i].bound == bound ? add_exponential(p, &charges.at[i].log, &fixed[bound]) : 0;
            if (column) {
                index[++count[bound]] = column;
                value[count[bound]] = -1;
            }
        }
        if (room && fixed[bound] > 1) /* what cannot be made smaller does not fit anyway: no reason to refuse all */
            continue;
        int row = glp_add_rows(p->lp, 1);
        glp_set_row_bnds(p->lp, row, GLP_LO, room ? fixed[bound] - 1 : fixed[bound], 0);
        glp_set_mat_row(p->lp, row, count[bound], index, value);
    }
    ef_vec_free(&charges);
    free(index);
    free(value);
    return glp_get_num_rows(p->lp) < ROWS;
}

/* ---- the solution ---- */

static void read_solution(const program *p, ef_ranking *out)
{
    out->us = 0;
    out->kernel_us = ef_xcalloc((size_t)p->g->kernels.count + 1, sizeof *out->kernel_us);
    for (uint32_t k = 0; k < p->g->kernels.count; k++) {
        out->kernel_us[k] = p->target->launch_us + glp_get_col_prim(p->lp, p->time[k]);
        out->us += out->kernel_us[k];
    }
}

static bool solve(program *p, ef_diag *diag)
{
    glp_smcp options;
    glp_init_smcp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = GLP_ON;
    options.tm_lim = 2000;
    glp_scale_prob(p->lp, GLP_SF_AUTO);
    if (glp_simplex(p->lp, &options) != 0 || glp_get_status(p->lp) != GLP_OPT)
        return ef_fail(diag, "the linear program of %s has no solution", p->g->name);
    return true;
}

bool ef_rank(const ef_kgraph *g, const ef_target *target, uint32_t threads, ef_ranking *out, ef_diag *diag)
{
    ef_target device = ef_target_with_threads(target, threads);
    program p = {.g = g, .target = &device};
    bool fine = true;
    if (g->params.count > EF_RANK_PARAMS)
        return ef_fail(diag, "%s has too many parameters to rank it", g->name);
    *out = (ef_ranking){0};
    glp_term_out(GLP_OFF);
    p.lp = glp_create_prob();
    glp_set_obj_dir(p.lp, GLP_MIN);
    p.column = ef_xcalloc((size_t)g->params.count + 1, sizeof *p.column);
    p.most = ef_xcalloc((size_t)g->params.count + 1, sizeof *p.most);
    p.time = ef_xcalloc((size_t)g->kernels.count + 1, sizeof *p.time);
    add_tiles(&p);
    nest_tiles(&p);
    for (uint32_t k = 0; k < g->kernels.count && fine; k++)
        fine = add_kernel(&p, k) || ef_fail(diag, "%s is too large to rank", g->name);
    fine = fine && solve(&p, diag);
    if (fine)
        read_solution(&p, out);
    glp_delete_prob(p.lp);
    glp_free_env(); /* it is this thread's, and nobody frees it when the thread ends */
    free(p.column);
    free(p.most);
    free(p.time);
    if (!fine)
        ef_ranking_free(out);
    return fine;
}

void ef_ranking_free(ef_ranking *ranking)
{
    free(ranking->kernel_us);
    *ranking = (ef_ranking){0};
}

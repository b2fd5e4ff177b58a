/* The C generator: see c.h. A kernel's code is a function of its buffers, which equal kernels share: OpenMP loops over
 * the grid, and in them the tiles of the body in the order of their numbers, with the loops of reductions where they
 * stand. */
#include "codegen/c.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/c_print.h"

const char *const ef_c_type_names[] = {
    [C_INT] = "int", [C_LONG] = "int64_t", [C_FLOAT] = "float", [C_DOUBLE] = "double"};

c_type ef_c_type(ef_dtype dtype)
{
    static const c_type type[EF_DTYPE_COUNT] = {[EF_BOOL] = C_INT,  [EF_NUM] = C_FLOAT, [EF_I32] = C_INT,
                                                [EF_I64] = C_LONG,  [EF_F16] = C_FLOAT, [EF_BF16] = C_FLOAT,
                                                [EF_F32] = C_FLOAT, [EF_F64] = C_DOUBLE};
    return type[dtype];
}

/* How elements lie in memory. */
static const char *memory_type(ef_dtype dtype)
{
    static const char *const type[EF_DTYPE_COUNT] = {
        [EF_BOOL] = "uint8_t", [EF_NUM] = "float",     [EF_I32] = "int32_t", [EF_I64] = "int64_t",
        [EF_F16] = "uint16_t", [EF_BF16] = "uint16_t", [EF_F32] = "float",   [EF_F64] = "double"};
    return type[dtype];
}

/* ---- text ---- */

void ef_c_line(ef_c *c, const char *format, ...)
{
    va_list args;
    char text[4096];
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof text) {
        c->failed = true;
        return;
    }
    if (text[0] != '#')
        for (unsigned i = 0; i < c->indent; i++)
            ef_strbuf_puts(c->out, "    ");
    ef_strbuf_puts(c->out, text);
    ef_strbuf_puts(c->out, "\n");
}

const char *ef_c_text(ef_c *c, const char *format, ...)
{
    va_list args;
    char text[4096];
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof text)
        c->failed = true;
    return ef_arena_strndup(c->arena, text, (unsigned)strlen(text));
}

const char *ef_c_index(ef_c *c, ef_index index)
{
    ef_strbuf text = {0};
    ef_index_print(c->ix, index, &text);
    const char *copy = ef_arena_strndup(c->arena, text.text, (unsigned)text.length);
    ef_strbuf_free(&text);
    return copy;
}

/* A name that C accepts as part of an identifier. */
const char *ef_c_identifier(ef_c *c, const char *name)
{
    char text[48];
    unsigned n = 0;
    for (; name[n] && n + 1 < sizeof text; n++)
        text[n] = isalnum((unsigned char)name[n]) ? name[n] : '_';
    text[n] = 0;
    return ef_arena_strndup(c->arena, text, n);
}

const char *ef_c_var_name(ef_c *c, ef_var var)
{
    ef_strbuf text = {0};
    ef_var_print(c->graph->ctx, var, &text);
    const char *name = ef_c_identifier(c, text.text);
    ef_strbuf_free(&text);
    return name;
}

const char *ef_c_buffer_name(ef_c *c, uint32_t buffer)
{
    static const char *const kind[] = {"in", "tmp", "out"};
    const ef_kbuffer *b = &c->graph->buffers.at[buffer];
    return ef_c_text(c, "%s%u_%s", kind[b->kind], buffer, ef_c_identifier(c, b->name));
}

/* ---- extents ---- */

unsigned ef_c_atoms(ef_c *c, const ef_knode *node, c_atom *atom)
{
    unsigned n = 0;
    for (unsigned i = node->rank; i-- > 0;) {
        const ef_var *vars;
        unsigned count = ef_dim_atoms(c->graph->ctx, node->dim[i].dim, &vars);
        for (unsigned a = 0; a < count; a++) {
            uint64_t extent = ef_sched_var(c->graph, c->schedule, vars[a]);
            atom[n] = (c_atom){.var = vars[a], .dim = i, .room = extent, .fixed = true};
            if (a == 0 && node->dim[i].cut != EF_NONE) {
                const c_iter *iter = &c->iter[node->dim[i].cut];
                atom[n].room = iter->room;
                atom[n].len = iter->len;
                atom[n].fixed = iter->fixed;
            } else {
                atom[n].len = ef_c_text(c, "%" PRIu64, extent);
            }
            n++;
        }
    }
    return n;
}

unsigned ef_c_atom_count(const ef_c *c, const ef_knode *node)
{
    const ef_var *vars;
    unsigned n = 0;
    for (unsigned i = 0; i < node->rank; i++)
        n += ef_dim_atoms(c->graph->ctx, node->dim[i].dim, &vars);
    return n;
}

uint64_t ef_c_room(ef_c *c, const ef_knode *node)
{
    c_atom atom[C_MAX_ATOMS];
    uint64_t room = 1;
    for (unsigned i = 0, n = ef_c_atoms(c, node, atom); i < n; i++)
        room *= atom[i].room;
    return room;
}

/* ---- iterators ---- */

/* What is known of an iterator before its loop is printed. One that takes a single position needs no variable. */
static void plan_iter(ef_c *c, uint32_t at)
{
    const ef_iter *iter = &c->kernel->iters.at[at];
    c_iter *out = &c->iter[at];
    uint64_t whole = ef_sched_whole(c->graph, c->schedule, c->kernel, at);
    uint64_t trips = ef_sched_trips(c->graph, c->schedule, c->kernel, at);
    const c_iter *outer = iter->outer == EF_NONE ? NULL : &c->iter[iter->outer];
    ef_part_run run[EF_K_MAX_RUNS];
    bool all = ef_sched_runs(c->graph, c->schedule, c->kernel, at, run) == 0;
    out->room = ef_sched_tile(c->graph, c->schedule, c->kernel, at);
    out->fixed = !outer || outer->fixed;
    if (all && trips == 1 && iter->kind != EF_ITER_PICK) {
        out->start = outer ? outer->start : ef_index_const(c->ix, 0);
        out->position = ef_index_const(c->ix, 0);
        out->len = outer ? outer->len : ef_c_text(c, "%" PRIu64, whole);
        return;
    }
    const char *base = iter->kind == EF_ITER_PICK ? "part" : ef_c_var_name(c, ef_axis_var(iter->axis));
    out->name = ef_c_text(c, "at_%s_%u", base, at);
    uint64_t limit = iter->kind == EF_ITER_PICK ? whole : ef_sched_var(c->graph, c->schedule, ef_axis_var(iter->axis));
    out->start = ef_index_name(c->ix, out->name, limit);
    out->position = ef_index_div(c->ix, outer ? ef_index_sub(c->ix, out->start, outer->start) : out->start, out->room);
    if (!all)
        out->position = ef_index_name(c->ix, ef_c_text(c, "p%u", at), trips);
    out->fixed = out->fixed && whole % out->room == 0;
    out->len = out->fixed ? ef_c_text(c, "%" PRIu64, out->room) : ef_c_text(c, "n_%s_%u", base, at);
}

static const char *outer_start(ef_c *c, uint32_t at)
{
    uint32_t outer = c->kernel->iters.at[at].outer;
    return outer == EF_NONE ? "0" : ef_c_index(c, c->iter[outer].start);
}

/* Where an iterator ends: the end of the block or of the dimension. */
static const char *outer_end(ef_c *c, uint32_t at)
{
    uint32_t outer = c->kernel->iters.at[at].outer;
    if (outer == EF_NONE)
        return ef_c_text(c, "%" PRIu64, ef_sched_whole(c->graph, c->schedule, c->kernel, at));
    return ef_c_text(c, "%s + %s", ef_c_index(c, c->iter[outer].start), c->iter[outer].len);
}

static void print_length(ef_c *c, uint32_t at)
{
    const c_iter *iter = &c->iter[at];
    if (!iter->fixed && iter->name)
        ef_c_line(c, "const long %s = ef_least(%" PRIu64 ", %s - %s);", iter->len, iter->room, outer_end(c, at),
                  iter->name);
}

/* ---- loops ---- */

static void print_region(ef_c *c, uint32_t region);

/* Whether a chain of single users leads from the loop's old state to its new one, element by element: then the state
 * can be updated in place. */
static bool is_private(const ef_c *c, const ef_kloop *loop, unsigned leaf)
{
    ef_kid at = loop->state[leaf];
    const ef_knode *state = ef_kernel_node(c->kernel, at);
    while (at != loop->next[leaf]) {
        if (c->use[at].users != 1 || (at != loop->state[leaf] && c->node[at].tile))
            return false;
        at = c->use[at].user;
        const ef_knode *node = ef_kernel_node(c->kernel, at);
        if (node->op >= EF_OP_COUNT || !ef_op_pointwise((ef_op)node->op) || node->rank != state->rank ||
            memcmp(node->dim, state->dim, sizeof node->dim) != 0)
            return false;
    }
    return true;
}

/* Whether the new state is the scaled old one plus a product that nothing else uses: the product adds to it directly.
 */
static bool adds_product(const ef_c *c, const ef_kloop *loop, unsigned leaf)
{
    const ef_knode *next = ef_kernel_node(c->kernel, loop->next[leaf]);
    if (next->op != EF_ADD)
        return false;
    const ef_knode *y = ef_kernel_node(c->kernel, next->child[1]);
    return y->op == EF_TILE_MATMUL && c->use[next->child[1]].users == 1 && y->rank == next->rank &&
           memcmp(y->dim, next->dim, sizeof y->dim) == 0;
}

static void declare_states(ef_c *c, uint32_t number)
{
    const ef_kloop *loop = &c->kernel->loops.at[number];
    for (unsigned i = 0; i < loop->leaves; i++) {
        c_node *state = &c->node[loop->state[i]], *next = &c->node[loop->next[i]];
        state->name = ef_c_text(c, "state%u_%u", number, i);
        ef_c_declare(c, loop->state[i], state->name);
        if (is_private(c, loop, i)) {
            next->name = state->name;
            if (adds_product(c, loop, i))
                c->node[ef_kernel_node(c->kernel, loop->next[i])->child[1]].done = true;
        }
        ef_c_fill(c, loop->state[i], ef_reducer_identity(loop->base[i]));
    }
}

/* States that others read while they change have their new value in a tile of its own until the iteration ends. */
static void move_states(ef_c *c, const ef_kloop *loop)
{
    for (unsigned i = 0; i < loop->leaves; i++) {
        const char *state = c->node[loop->state[i]].name, *next = c->node[loop->next[i]].name;
        if (strcmp(state, next) != 0)
            ef_c_line(c, "memcpy(%s, %s, %" PRIu64 " * sizeof *%s);", state, next,
                      ef_c_room(c, ef_kernel_node(c->kernel, loop->state[i])), state);
    }
}

static void print_loop(ef_c *c, uint32_t number)
{
    const ef_kloop *loop = &c->kernel->loops.at[number];
    const c_iter *iter = &c->iter[loop->iter];
    declare_states(c, number);
    if (iter->name)
        ef_c_line(c, "for (long %s = %s; %s < %s; %s += %" PRIu64 ") {", iter->name, outer_start(c, loop->iter),
                  iter->name, outer_end(c, loop->iter), iter->name, iter->room);
    else
        ef_c_line(c, "{");
    c->indent++;
    print_length(c, loop->iter);
    const char *condition = ef_c_may_change(c, loop);
    if (condition)
        ef_c_line(c, "if (%s) {", condition);
    c->indent += condition != NULL;
    print_region(c, number);
    move_states(c, loop);
    ef_c_close(c, condition ? 2 : 1);
}

/* The new state of a loop in place: the old one scaled, then the product added. */
static bool print_in_place(ef_c *c, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    if (!c->node[id].name || node->count != 2 || !c->node[node->child[1]].done)
        return false;
    ef_c_line(c, "/* %s: in place */", c->node[id].name);
    if (ef_kernel_node(c->kernel, node->child[0])->op != EF_K_STATE)
        ef_c_write(c, node->child[0], c->node[id].name);
    ef_c_matmul(c, node->child[1], c->node[id].name);
    return true;
}

static void print_region(ef_c *c, uint32_t region)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(c->kernel); id++) {
        const ef_knode *node = ef_kernel_node(c->kernel, id);
        if (!c->use[id].needed || ef_knode_region(node) != region || c->node[id].done)
            continue;
        if (node->op == EF_K_LOOP)
            print_loop(c, (uint32_t)node->attr);
        else if (node->op == EF_K_RESULT)
            c->node[id].name =
                c->node[c->kernel->loops.at[ef_k_loop_of(node->attr)].state[ef_k_leaf_of(node->attr)]].name;
        else if (c->node[id].tile && node->op != EF_K_STATE && !print_in_place(c, id))
            ef_c_tile(c, id);
    }
}

/* ---- kernels ---- */

/* The buffers that a kernel reads and writes, in the order in which its code names them; fewer than the graph has. */
static uint32_t find_buffers(ef_c *c, const char *body, uint32_t *buffer, bool *written)
{
    const ef_kernel *k = c->kernel;
    bool *seen = ef_xcalloc(c->graph->buffers.count + 1, sizeof *seen);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (ef_kernel_node(k, id)->op == EF_K_BUFFER && c->use[id].needed)
            seen[ef_kernel_node(k, id)->attr] = true;
    for (uint32_t s = 0; s < k->stores.count; s++)
        seen[k->stores.at[s].buffer] = written[k->stores.at[s].buffer] = true;
    uint32_t count = ef_c_used_buffers(c, body, seen, buffer);
    free(seen);
    return count;
}

/* Where an iterator begins whose positions p are counted: the parts that are there are numbered through. */
static const char *start_of(ef_c *c, uint32_t at)
{
    ef_part_run run[EF_K_MAX_RUNS];
    unsigned runs = ef_sched_runs(c->graph, c->schedule, c->kernel, at, run);
    const char *place = ef_c_text(c, "p%u", at);
    uint64_t before = 0;
    for (unsigned i = 0; i < runs; before += run[i++].count) {
        const char *own = ef_c_text(c, "p%u + %" PRIu64, at, run[i].first - before);
        place = i ? ef_c_text(c, "(p%u < %" PRIu64 " ? %s : %s)", at, before, place, own) : own;
    }
    return ef_c_text(c, "%s + (%s) * %" PRIu64, outer_start(c, at), place, c->iter[at].room);
}

/* Whether an iterator of the grid counts positions: one that divides another's block, since its bounds would move, and
 * one of which not all parts are there. */
static bool counts_positions(ef_c *c, uint32_t at)
{
    ef_part_run run[EF_K_MAX_RUNS];
    return c->kernel->iters.at[at].outer != EF_NONE || ef_sched_runs(c->graph, c->schedule, c->kernel, at, run) > 0;
}

/* The loops of the grid. */
static unsigned open_grid(ef_c *c)
{
    const ef_kernel *k = c->kernel;
    unsigned loops = 0;
    for (uint32_t i = 0; i < k->grid; i++)
        loops += c->iter[i].name != NULL;
    if (loops)
        ef_c_line(c, "#pragma omp parallel for collapse(%u) schedule(%s) num_threads(threads) if (threads > 1)", loops,
                  ef_kernel_is_uneven(k) ? "dynamic" : "static");
    for (uint32_t i = 0; i < k->grid; i++) {
        const c_iter *iter = &c->iter[i];
        if (!iter->name)
            continue;
        if (!counts_positions(c, i))
            ef_c_line(c, "for (long %s = 0; %s < %s; %s += %" PRIu64 ")", iter->name, iter->name, outer_end(c, i),
                      iter->name, iter->room);
        else
            ef_c_line(c, "for (long p%u = 0; p%u < %" PRIu64 "; p%u++)", i, i,
                      ef_sched_trips(c->graph, c->schedule, k, i), i);
    }
    ef_c_line(c, "{");
    c->indent++;
    for (uint32_t i = 0; i < k->grid; i++) {
        if (c->iter[i].name && counts_positions(c, i))
            ef_c_line(c, "const long %s = ef_least(%s, %s);", c->iter[i].name, start_of(c, i), outer_end(c, i));
        print_length(c, i);
    }
    return loops;
}

static void print_body(ef_c *c)
{
    const ef_kernel *k = c->kernel;
    c->indent++;
    open_grid(c);
    ef_c_line(c, "char *const scratch = scratches + ef_thread() * SCRATCH;");
    ef_c_line(c, "(void)scratch;");
    print_region(c, EF_NONE);
    for (uint32_t s = 0; s < k->stores.count; s++)
        ef_c_store(c, &k->stores.at[s]);
    c->indent--;
    ef_c_line(c, "}");
    c->indent--;
}

/* A program that is being printed. */
typedef struct {
    const ef_kgraph *graph;
    const ef_schedule *schedule;
    const char *name;
    uint64_t *offset; /* by buffer, in the workspace */
    uint64_t scratch; /* bytes that a thread needs, of any kernel */
    ef_arena *arena;
    ef_c_function *function; /* by kernel */
    ef_strbuf *out;
    bool failed;
} printing;

static const char *keep(const printing *p, const ef_strbuf *text)
{
    return ef_arena_strndup(p->arena, text->text ? text->text : "", (unsigned)text->length);
}

static void keep_function(printing *p, ef_c *c, uint32_t number, const char *body)
{
    uint32_t *buffer = ef_arena_alloc(p->arena, (p->graph->buffers.count + 1) * sizeof *buffer);
    bool *written = ef_xcalloc(p->graph->buffers.count + 1, sizeof *written);
    uint32_t count = find_buffers(c, body, buffer, written);
    ef_strbuf parameters = {0}, code = {0};
    for (uint32_t i = 0; i < count; i++)
        ef_strbuf_printf(&parameters, "%s%s *restrict %s, ", written[buffer[i]] ? "" : "const ",
                         memory_type((ef_dtype)c->graph->buffers.at[buffer[i]].dtype), ef_c_buffer_name(c, buffer[i]));
    ef_strbuf_printf(&code,
                     "{\n    enum { SCRATCH = %" PRIu64 " };\n"
                     "    (void)scratches, (void)threads;\n%s}\n\n",
                     c->scratch, body);
    p->function[number] =
        (ef_c_function){.parameters = keep(p, &parameters), .body = keep(p, &code), .buffer = buffer, .buffers = count};
    ef_strbuf_free(&parameters);
    ef_strbuf_free(&code);
    free(written);
}

/* The code is not inlined, nor specialised: compilers would put that of hundreds of kernels into one function, and take
 * several times as long. */
static void print_code(const printing *p, uint32_t number)
{
    const ef_c_function *f = &p->function[number];
    ef_strbuf_printf(p->out, "EF_SHARED void %s_k%u_code(%s%schar *scratches, int threads)\n%s", p->name, number,
                     f->parameters, f->sizes, f->body);
}

/* The call of a kernel's code, with the kernel's buffers and sizes. */
static void print_call(const printing *p, uint32_t number)
{
    const ef_c_function *f = &p->function[number];
    ef_strbuf_printf(p->out, "    %s_k%u_code(", p->name, f->like);
    for (uint32_t i = 0; i < f->buffers; i++) {
        const ef_kbuffer *b = &p->graph->buffers.at[f->buffer[i]];
        if (b->kind == EF_BUFFER_TEMP)
            ef_strbuf_printf(p->out, "(void *)(work + %" PRIu64 "), ", p->offset[f->buffer[i]]);
        else
            ef_strbuf_printf(p->out, "%s[%u], ", b->kind == EF_BUFFER_INPUT ? "in" : "out", b->index);
    }
    ef_strbuf_printf(p->out, "%sscratches, threads);\n", f->arguments);
}

/* Code that several kernels have stands once; then all calls. `us`: what each kernel takes is wanted. */
static void print_functions(const printing *p, uint64_t size)
{
    uint32_t count = p->graph->kernels.count;
    for (uint32_t i = 0; i < count; i++)
        if (p->function[i].like == i)
            print_code(p, i);
    ef_strbuf_printf(p->out,
                     "EF_CALLS void %s_calls(void *const *in, void *const *out, char *work, int threads, double *us)\n"
                     "{\n    char *const scratches = work + %" PRIu64 ";\n    double last = 0;\n"
                     "    (void)in, (void)out, (void)scratches, (void)last, (void)threads, (void)us;\n",
                     p->name, size);
    if (count)
        ef_strbuf_puts(p->out, "    if (us)\n        ef_lap(us, &last);\n");
    for (uint32_t i = 0; i < count; i++) {
        print_call(p, i);
        ef_strbuf_printf(p->out, "    if (us)\n        ef_lap(us + %u, &last);\n", i);
    }
    ef_strbuf_puts(p->out, "}\n\n");
}

static void print_kernel(printing *p, uint32_t number)
{
    const ef_kernel *k = p->graph->kernels.at[number];
    ef_strbuf body = {0};
    ef_c c = {.graph = p->graph,
              .schedule = p->schedule,
              .kernel = k,
              .arena = ef_arena_new(),
              .ix = ef_indexer_new(),
              .out = &body};
    c.iter = ef_xcalloc(k->iters.count + 1, sizeof *c.iter);
    c.node = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *c.node);
    c.use = ef_uses_new(k);
    c.start = ef_xcalloc(k->iters.count + 1, sizeof *c.start);
    c.memo = ef_intern_new();
    for (uint32_t i = 0; i < k->iters.count; i++) {
        plan_iter(&c, i);
        c.start[i] = c.iter[i].start;
    }
    c.maps = (ef_maps){p->graph, p->schedule, k, c.ix, c.start};
    ef_c_plan(&c);
    print_body(&c);
    keep_function(p, &c, number, body.text);
    p->failed = p->failed || c.failed;
    p->scratch = c.scratch > p->scratch ? c.scratch : p->scratch;
    ef_strbuf_free(&body);
    ef_intern_free(c.memo);
    ef_vec_free(&c.values);
    ef_vec_free(&c.types);
    free(c.iter);
    free(c.start);
    free(c.node);
    free(c.use);
    ef_indexer_free(c.ix);
    ef_arena_free(c.arena);
}

/* ---- programs ---- */

void ef_codegen_c_runtime(ef_strbuf *out)
{
    for (unsigned i = 0; ef_c_runtime[i]; i++)
        ef_strbuf_puts(out, ef_c_runtime[i]);
}

static void print_buffer_list(const ef_kgraph *g, ef_buffer_kind kind, const char *title, ef_strbuf *out)
{
    for (uint32_t i = 0; i < g->buffers.count; i++) {
        const ef_kbuffer *b = &g->buffers.at[i];
        if (b->kind != kind)
            continue;
        ef_strbuf_printf(out, " * %s %u: %s %s[", title, b->index, b->name, ef_dtype_names[b->dtype]);
        for (unsigned d = b->rank; d-- > 0;) {
            ef_dim_print(g->ctx, b->dim[d], out);
            ef_strbuf_puts(out, d ? ", " : "");
        }
        ef_strbuf_puts(out, "]\n");
    }
}

static void print_header(const ef_kgraph *g, const ef_schedule *s, ef_strbuf *out)
{
    ef_strbuf_printf(out, "/* Program %s\n", g->name);
    print_buffer_list(g, EF_BUFFER_INPUT, "in", out);
    print_buffer_list(g, EF_BUFFER_OUTPUT, "out", out);
    for (uint32_t i = 0; i < s->count; i++) {
        if (g->params.at[i].kind != EF_PARAM_TILE)
            continue;
        ef_strbuf_puts(out, " * tile ");
        ef_axis_print(g->ctx, g->params.at[i].axis, out);
        ef_strbuf_printf(out, " = %" PRIu64, s->value[i]);
        if (g->params.at[i].kernel != EF_NONE)
            ef_strbuf_printf(out, " in kernel %s", g->kernels.at[g->params.at[i].kernel]->name);
        ef_strbuf_puts(out, "\n");
    }
    ef_strbuf_puts(out, " */\n");
}

uint64_t ef_codegen_c(const ef_kgraph *g, const ef_schedule *s, const char *name, ef_strbuf *out, ef_diag *diag)
{
    printing p = {.graph = g, .schedule = s, .name = name, .arena = ef_arena_new(), .out = out};
    p.offset = ef_xcalloc(g->buffers.count + 1, sizeof *p.offset);
    p.function = ef_xcalloc(g->kernels.count + 1, sizeof *p.function);
    uint64_t size = ef_sched_plan(g, s, p.offset);
    print_header(g, s, out);
    for (uint32_t i = 0; i < g->kernels.count; i++)
        print_kernel(&p, i);
    ef_c_share(p.function, g->kernels.count, p.arena);
    print_functions(&p, size);
    ef_strbuf_printf(out,
                     "void %s(void *const *in, void *const *out, char *work, int threads)\n{\n"
                     "    %s_calls(in, out, work, threads, NULL);\n}\n\n",
                     name, name);
    ef_arena_free(p.arena);
    free(p.function);
    free(p.offset);
    if (p.failed) {
        ef_fail(diag, "cannot print %s as C: a value has too many dimensions or an expression is too long", g->name);
        return 0;
    }
    return size + p.scratch * s->threads + 64;
}

void ef_codegen_c_timed(const ef_kgraph *g, const char *name, ef_strbuf *out)
{
    ef_strbuf_printf(out,
                     "\nvoid %s_timed(void *const *in, void *const *out, char *work, int threads, double *us)\n{\n"
                     "    %s_calls(in, out, work, threads, us);\n}\nconst int %s_kernels = %" PRIu32 ";\n",
                     name, name, name, g->kernels.count);
}

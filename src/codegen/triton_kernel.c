/* One kernel as a Triton function: which block this program is, the values in the order of their numbers, the stores.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

/* ---- iterators ---- */

/* What is known of an iterator before it is printed. One that takes a single position needs no variable. */
static void plan_iter(ef_t *t, uint32_t at)
{
    const ef_iter *iter = &t->kernel->iters.at[at];
    t_iter *out = &t->iter[at];
    uint64_t whole = ef_sched_whole(t->graph, t->schedule, t->kernel, at);
    uint64_t trips = ef_sched_trips(t->graph, t->schedule, t->kernel, at);
    const t_iter *outer = iter->outer == EF_NONE ? NULL : &t->iter[iter->outer];
    ef_part_run run[EF_K_MAX_RUNS];
    bool all = ef_sched_runs(t->graph, t->schedule, t->kernel, at, run) == 0;
    out->room = ef_sched_tile(t->graph, t->schedule, t->kernel, at);
    if (all && trips == 1 && iter->kind != EF_ITER_PICK) {
        out->start = outer ? outer->start : ef_index_const(t->ix, 0);
        out->position = ef_index_const(t->ix, 0);
        out->len = outer ? outer->len : NULL;
        return;
    }
    const char *base = iter->kind == EF_ITER_PICK ? "part" : ef_t_var_name(t, ef_axis_var(iter->axis));
    out->limit = iter->kind == EF_ITER_PICK ? whole : ef_sched_var(t->graph, t->schedule, ef_axis_var(iter->axis));
    out->name = ef_t_text(t, "at_%s_%" PRIu32, base, at);
    out->start = out->variable = ef_index_name(t->ix, out->name, out->limit);
    out->position = ef_index_div(t->ix, outer ? ef_index_sub(t->ix, out->start, outer->start) : out->start, out->room);
    if (!all)
        out->position = ef_index_name(t->ix, ef_t_text(t, "part_%s_%" PRIu32, base, at), trips);
    bool fixed = (!outer || !outer->len) && whole % out->room == 0;
    out->len = fixed ? NULL : ef_t_text(t, "n_%s_%" PRIu32, base, at);
}

const char *ef_t_iter_len(const ef_t *t, uint32_t iter, unsigned *level)
{
    while (!t->iter[iter].name && t->kernel->iters.at[iter].outer != EF_NONE)
        iter = t->kernel->iters.at[iter].outer;
    *level = t->iter[iter].level;
    return t->iter[iter].len;
}

/* ---- levels ---- */

void ef_t_open(ef_t *t)
{
    if (t->level + 1 == T_MAX_LEVELS) {
        ef_t_fail(t, "loops are nested more than %u deep", T_MAX_LEVELS);
        return;
    }
    t->level++;
    t->serial[t->level]++;
}

void ef_t_close(ef_t *t, const char *head)
{
    if (t->level == 0)
        return; /* opening it failed */
    ef_strbuf body = t->body[t->level];
    t->body[t->level] = (ef_strbuf){0};
    t->level--;
    ef_t_line(t, t->level, "%s", head);
    ef_strbuf_add(&t->body[t->level], body.text, body.length);
    ef_strbuf_free(&body);
}

void ef_t_region(ef_t *t, uint32_t region)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(t->kernel) && !t->diag->failed; id++) {
        const ef_knode *node = ef_kernel_node(t->kernel, id);
        if (!t->use[id].needed || ef_knode_region(node) != region)
            continue;
        if (node->op == EF_K_LOOP) {
            ef_t_loop(t, (uint32_t)node->attr);
        } else if (node->op == EF_K_RESULT) {
            ef_kid state = t->kernel->loops.at[ef_k_loop_of(node->attr)].state[ef_k_leaf_of(node->attr)];
            t_node *to = &t->node[id], *from = &t->node[state];
            to->made = true;
            to->value = from->value;
            to->rank = from->rank;
            memcpy(to->axis, from->axis, sizeof to->axis);
        } else if (!t->node[id].made && node->op == EF_TILE_MATMUL) {
            ef_t_matmul(t, id);
        } else if (!t->node[id].made && node->op == EF_REDUCE) {
            ef_t_reduce(t, id);
        }
    }
}

/* ---- preparing ---- */

/* Addresses of large buffers need 64 bits, and so do as many positions. */
static bool is_wide(const ef_t *t)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(t->kernel); id++) {
        const ef_knode *node = ef_kernel_node(t->kernel, id);
        if (t->use[id].needed && node->op == EF_IOTA &&
            ef_sched_dim(t->graph, t->schedule, node->dim[0].dim) > INT32_MAX)
            return true;
    }
    for (uint32_t i = 0; i < t->graph->buffers.count; i++)
        if (ef_sched_buffer(t->graph, t->schedule, i) > INT32_MAX)
            return true;
    return false;
}

/* ---- the grid ---- */

/* The parts that are there are numbered through: what this one's number would be if all were. */
static const char *place_of_part(ef_t *t, uint32_t at, const char *position)
{
    ef_part_run run[EF_K_MAX_RUNS];
    unsigned runs = ef_sched_runs(t->graph, t->schedule, t->kernel, at, run);
    const char *number = ef_t_index(t, t->iter[at].position), *place;
    if (!runs)
        return position;
    ef_t_line(t, 0, "%s = %s", number, position);
    place = run[0].first ? ef_t_text(t, "%s + %" PRIu64, number, run[0].first) : number;
    uint64_t before = run[0].count;
    for (unsigned i = 1; i < runs; before += run[i++].count)
        place = ef_t_text(t, "tl.where(%s < %" PRIu64 ", %s, %s + %" PRIu64 ")", number, before, place, number,
                          run[i].first - before);
    return ef_t_text(t, "(%s)", place);
}

static void print_grid_iter(ef_t *t, uint32_t at, const char *position)
{
    t_iter *iter = &t->iter[at];
    uint32_t outer = t->kernel->iters.at[at].outer;
    position = place_of_part(t, at, position);
    const char *start = iter->room == 1 ? position : ef_t_text(t, "%s * %" PRIu64, position, iter->room);
    if (outer != EF_NONE)
        start = ef_t_text(t, "%s + %s", ef_t_index(t, t->iter[outer].start), start);
    ef_t_line(t, 0, "%s = %s", iter->name, start);
    ef_index end = ef_t_outer_end(t, at);
    if (iter->len)
        ef_t_line(t, 0, "%s = tl.minimum(%" PRIu64 ", %s - %s)", iter->len, iter->room, ef_t_index(t, end), iter->name);
    if (iter->len && iter->room == 1) {
        ef_t_line(t, 0, "if %s <= 0:", iter->len);
        ef_t_line(t, 0, "    return");
    }
}

/* Which block this is, as text for each iterator: its position. */
static void find_positions(ef_t *t, const char **position, uint64_t blocks)
{
    uint64_t inner = 1;
    for (uint32_t i = t->kernel->grid; i-- > 0;) {
        uint64_t trips = ef_sched_trips(t->graph, t->schedule, t->kernel, i);
        position[i] = inner == 1 ? "block" : ef_t_text(t, "block // %" PRIu64, inner);
        inner = ef_sched_times(inner, trips);
        if (inner != blocks)
            position[i] = ef_t_text(t, "%s %% %" PRIu64, position[i], trips);
    }
}

/* The two innermost iterators in groups: `group` rows are walked along together, column by column. */
static void group_positions(ef_t *t, const char **position, uint64_t blocks, uint64_t group)
{
    uint32_t at[2], found = 0;
    for (uint32_t i = t->kernel->grid; i-- > 0 && found < 2;)
        if (t->iter[i].name)
            at[found++] = i;
    if (found < 2 || group < 2)
        return;
    uint64_t columns = ef_sched_trips(t->graph, t->schedule, t->kernel, at[0]);
    uint64_t rows = ef_sched_trips(t->graph, t->schedule, t->kernel, at[1]);
    const char *within = rows * columns == blocks ? "block" : ef_t_text(t, "block %% %" PRIu64, rows * columns);
    group = group < rows ? group : rows;
    ef_t_line(t, 0, "first = (%s) // %" PRIu64 " * %" PRIu64, within, group * columns, group);
    if (rows % group)
        ef_t_line(t, 0, "rows = tl.minimum(%" PRIu64 ", %" PRIu64 " - first)", group, rows);
    const char *height = rows % group ? "rows" : ef_t_text(t, "%" PRIu64, group);
    const char *inside = ef_t_text(t, "(%s) %% %" PRIu64, within, group * columns);
    position[at[1]] = ef_t_text(t, "(first + %s %% %s)", inside, height);
    position[at[0]] = ef_t_text(t, "(%s // %s)", inside, height);
}

/* A block of threads that finds its block of the grid empty ends; one that goes round could not. */
static bool may_be_empty(const ef_t *t)
{
    for (uint32_t i = 0; i < t->kernel->grid; i++)
        if (t->iter[i].name && t->iter[i].len && t->iter[i].room == 1)
            return true;
    return false;
}

/* The last iterator walks fastest. */
static uint64_t print_grid(ef_t *t)
{
    uint64_t blocks = ef_sched_blocks(t->graph, t->schedule, t->kernel);
    const char **position = ef_xcalloc(t->kernel->grid + 1, sizeof *position);
    const char *block = t->wide ? "tl.program_id(0).to(tl.int64)" : "tl.program_id(0)";
    if (t->persist) /* a plain number in Triton's interpreter */
        block = t->wide ? "tl.cast(turn, tl.int64)" : "tl.cast(turn, tl.int32)";
    bool asked = blocks > 1;
    for (uint32_t i = 0; i < t->kernel->grid; i++)
        asked = asked || t->iter[i].name; /* one part of several may be all that is there */
    if (blocks > INT32_MAX)
        ef_t_fail(t, "it has %" PRIu64 " blocks", blocks);
    if (blocks > 1 && ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_ORDER))
        ef_t_line(t, 0, "block = %" PRIu64 " - %s", blocks - 1, block);
    else if (asked)
        ef_t_line(t, 0, "block = %s", block);
    find_positions(t, position, blocks);
    group_positions(t, position, blocks, ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_GROUP));
    for (uint32_t i = 0; i < t->kernel->grid; i++)
        if (t->iter[i].name)
            print_grid_iter(t, i, position[i]);
    free(position);
    return blocks;
}

/* Lets the next kernel begin, behind the last one the first one of another call, where it is to begin early or `late`.
 */
static void print_release(const ef_t *t, ef_strbuf *to, bool late)
{
    uint32_t next = (t->number + 1) % t->graph->kernels.count;
    uint64_t begin = ef_sched_value(t->graph, t->schedule, next, EF_PARAM_OVERLAP);
    if (begin != EF_BEGIN_AFTER && (begin >= EF_BEGIN_LATE) == late)
        ef_strbuf_puts(to, "    gdc_launch_dependents()\n");
}

/* A kernel with EF_PARAM_OVERLAP is launched while the one before it runs, and waits for that: before it reads what a
 * kernel may have stored, or, where it reads nothing of the one before it (t->beside), in the end. What the program's
 * inputs hold is there when its first kernel has waited, so later ones load them ahead (t->ahead).
 * "Wait" is for the end of one kernel, the one before it.
 * That all earlier ones have ended, too, holds because a kernel lets the next one be launched behind its own wait. So
 * of kernels A, B and C, where B waits in the end, B may run while A does, and C is launched when A has ended. (That C
 * waited while B did was also measured to take 5 us more than one after the other.) */
static void print_overlap(const ef_t *t, ef_strbuf *to)
{
    if (ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_OVERLAP))
        ef_strbuf_puts(to, "    gdc_wait()\n");
    print_release(t, to, false);
}

/* ---- stores ---- */

static void print_store(ef_t *t, const ef_kstore *store, t_frame *frame)
{
    const ef_knode *node = ef_kernel_node(t->kernel, store->value);
    const ef_kbuffer *b = &t->graph->buffers.at[store->buffer];
    ef_index index[EF_MAP_ENTRIES], whole[EF_MAP_ENTRIES], lead[EF_K_MAX_LEADS];
    unsigned dim[EF_MAP_ENTRIES], axes, level, masked;
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned count = ef_t_axes(t, node, axis);
    ef_t_entry_dims(t, node, dim);
    ef_t_indices(t, frame, node, index);
    for (unsigned i = 0; i < count; i++) { /* the first variable of a dimension is the one that is cut */
        uint32_t cut = i > 0 && dim[i] == dim[i - 1] ? EF_NONE : node->dim[dim[i]].cut;
        whole[i] = cut == EF_NONE ? index[i] : ef_index_add(t->ix, index[i], t->iter[cut].start);
    }
    for (unsigned i = 0; i < store->leads; i++)
        lead[i] = t->iter[store->lead[i]].position;
    t_value value = ef_t_element(t, frame, store->value, index, false);
    value.text = ef_t_as(t, value, ef_t_type((ef_dtype)b->dtype));
    const char *pointer =
        ef_t_pointer(t, frame, store->buffer, ef_map_address(&t->maps, store->buffer, node, lead, store->leads, whole),
                     &axes, &level);
    const char *mask = ef_t_mask(t, frame, axes, &masked);
    for (uint32_t i = 0; i < t->kernel->grid; i++) { /* only the first coordinate stores what is the same at all */
        int64_t position;
        if (!(store->once >> i & 1) || ef_index_is_const(t->ix, t->iter[i].position, &position))
            continue;
        /* Alone it is no mask to Triton's interpreter. */
        const char *first = ef_t_text(t, "(%s == 0)", ef_t_index(t, t->iter[i].position));
        mask = ef_t_text(t, "tl.where(%s, %s, False)", first, mask ? mask : "True");
    }
    if (value.axes != axes && !value.literal && value.axes != (1u << frame->rank) - 1)
        value = ef_t_full(t, frame, value);
    const char *cast = ef_t_text(t, "tl.cast(%s, tl.%s)", value.text, ef_t_dtype((ef_dtype)b->dtype));
    ef_t_line(t, t->level, mask ? "tl.store(%s, %s, mask=%s)" : "tl.store(%s, %s)", pointer,
              value.literal ? value.text : cast, mask);
}

static void store(ef_t *t, const ef_kstore *at)
{
    t_frame frame;
    uint64_t part;
    if (!ef_t_own_frame(t, ef_kernel_node(t->kernel, at->value), &frame))
        return;
    uint32_t axis = ef_t_choose_part(&frame, ~0u, T_CHUNK_ELEMENTS, &part);
    const char *head = NULL;
    if (axis != EF_NONE && ef_t_elements(&frame) > T_MAX_ELEMENTS / 2)
        head = ef_t_open_part(t, axis, part, (t_frame *[]){&frame}, 1);
    if (ef_t_elements(&frame) > T_MAX_ELEMENTS)
        ef_t_too_large(t, "stored", ef_t_elements(&frame));
    if (!t->diag->failed)
        print_store(t, at, &frame);
    if (head)
        ef_t_close(t, head);
}

/* ---- the kernel ---- */

static void prepare(ef_t *t)
{
    const ef_kernel *k = t->kernel;
    t->iter = ef_xcalloc(k->iters.count + 1, sizeof *t->iter);
    t->node = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *t->node);
    t->use = ef_uses_new(k);
    t->start = ef_xcalloc(k->iters.count + 1, sizeof *t->start);
    t->elements.keys = ef_intern_new();
    t->texts.keys = ef_intern_new();
    t->maps = (ef_maps){t->graph, t->schedule, k, t->ix, t->start};
    t->wide = is_wide(t);
    t->tensor_cores = ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_UNIT) != 0;
    for (uint32_t i = 0; i < k->iters.count; i++) {
        plan_iter(t, i);
        t->start[i] = t->iter[i].start;
    }
    for (uint32_t i = 0; i < k->loops.count; i++)
        t->looping = t->looping || t->iter[k->loops.at[i].iter].name;
    for (ef_kid id = 0; t->tensor_cores && id < ef_kernel_nodes(k); id++)
        if (t->use[id].needed && ef_kernel_node(k, id)->op == EF_TILE_MATMUL)
            ef_t_widen_axes(t, id);
}

static void release(ef_t *t)
{
    for (unsigned i = 0; i < T_MAX_LEVELS; i++)
        ef_strbuf_free(&t->body[i]);
    ef_strbuf_free(&t->loads);
    ef_strbuf_free(&t->waiting);
    ef_intern_free(t->elements.keys);
    ef_vec_free(&t->elements.value);
    ef_vec_free(&t->elements.serial);
    ef_intern_free(t->texts.keys);
    ef_vec_free(&t->texts.value);
    ef_vec_free(&t->texts.serial);
    ef_vec_free(&t->axes);
    ef_vec_free(&t->scalars);
    free(t->iter);
    free(t->node);
    free(t->use);
    free(t->start);
    ef_indexer_free(t->ix);
    ef_arena_free(t->arena);
}

static void print_head(ef_t *t, t_kernel *kernel)
{
    ef_strbuf_printf(&kernel->text, "@triton.jit\ndef %s(", kernel->function);
    for (uint32_t i = 0, any = 0; i < t->graph->buffers.count; i++)
        if (t->reads[i])
            ef_strbuf_printf(&kernel->text, "%s%s", any++ ? ", " : "", ef_t_buffer_name(t, i));
    for (uint32_t i = 0; i < kernel->descriptors.count; i++)
        ef_strbuf_printf(&kernel->text, ", %s", kernel->descriptors.at[i].name);
    ef_strbuf_puts(&kernel->text, "):\n");
}

/* Once for all rounds: what stands before them. */
static void print_rounds(const ef_t *t, t_kernel *kernel)
{
    if (!t->beside)
        print_overlap(t, &kernel->text);
    ef_strbuf_printf(&kernel->text, "    for turn in tl.range(tl.program_id(0), %" PRIu64 ", tl.num_programs(0)):\n",
                     kernel->blocks);
    for (const char *line = t->body[0].text, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        ef_strbuf_printf(&kernel->text, "    %.*s\n", (int)(end - line), line);
    }
}

static void print_body(const ef_t *t, t_kernel *kernel)
{
    if (t->persist)
        print_rounds(t, kernel);
    else if (t->body[0].text)
        ef_strbuf_puts(&kernel->text, t->body[0].text);
    if (t->beside)
        print_overlap(t, &kernel->text);
    if (t->beside || t->persist)
        print_release(t, &kernel->text, true);
}

static void append(ef_strbuf *to, ef_strbuf *text)
{
    ef_strbuf_add(to, text->text, text->length);
    ef_strbuf_free(text);
}

/* What is computed and stored, with what is loaded for it in front, and the wait before that or behind loads of inputs.
 */
static void print_work(ef_t *t)
{
    ef_strbuf before = t->body[0];
    t->body[0] = (ef_strbuf){0};
    ef_t_region(t, EF_NONE);
    if (!t->persist && !t->beside)
        print_release(t, &t->body[0], true);
    for (uint32_t i = 0; i < t->kernel->stores.count && !t->diag->failed; i++)
        store(t, &t->kernel->stores.at[i]);
    if (t->ahead)
        append(&before, &t->loads);
    if (!t->persist && !t->beside)
        print_overlap(t, &before);
    append(&before, &t->loads);
    append(&before, &t->waiting);
    append(&before, &t->body[0]);
    t->body[0] = before;
}

static bool begins_evenly(const ef_t *t)
{
    uint64_t begin = ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_OVERLAP);
    return begin == EF_BEGIN_EARLY_EVENLY || begin == EF_BEGIN_LATE_EVENLY;
}

bool ef_t_kernel(const ef_kgraph *g, const ef_schedule *s, uint32_t number, t_kernel *kernel, ef_diag *diag)
{
    ef_t t = {.graph = g, .schedule = s, .kernel = g->kernels.at[number], .number = number, .diag = diag};
    t.arena = ef_arena_new();
    t.ix = ef_indexer_new();
    t.reads = kernel->reads;
    prepare(&t);
    t.out = kernel;
    t.beside = t.kernel->beside && ef_sched_value(g, s, number, EF_PARAM_OVERLAP);
    t.descriptors = ef_sched_value(g, s, number, EF_PARAM_LOAD) != 0 && !t.beside;
    t.persist =
        ef_sched_blocks(g, s, t.kernel) > 1 && !may_be_empty(&t) ? ef_sched_value(g, s, number, EF_PARAM_PERSIST) : 0;
    t.ahead = number > 0 && !t.persist && !t.beside && ef_sched_value(g, s, number, EF_PARAM_OVERLAP);
    kernel->blocks = print_grid(&t);
    print_work(&t);
    print_head(&t, kernel);
    print_body(&t, kernel);
    kernel->persist = t.persist;
    kernel->evenly = begins_evenly(&t);
    kernel->helpers = t.helpers | (t.persist ? T_HELP_RESIDENT : 0) | (kernel->evenly ? T_HELP_EVENLY : 0);
    release(&t);
    return !diag->failed;
}

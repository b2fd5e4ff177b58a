/* Lazy best-first composition of the candidates of parts: see partition.h.
 *
 * A combination is one index a part. The cheapest takes the first candidate everywhere; its successors take the next
 * one at one place, at or after the place where it was last changed itself, so every combination is reached once and
 * none before a cheaper one (each list is in order of cost). */
#include <stdlib.h>
#include <string.h>

#include "search/partition.h"

typedef struct {
    uint32_t *choice;
    uint32_t changed; /* successors change this place or later ones */
    double cost;
    uint64_t number; /* built before: ties go to the older one */
} combination;

struct ef_composer {
    const ef_partitions *set;
    const ef_partition *partition;
    struct {
        ef_part_candidate *at;
        uint32_t count;
    } *offer; /* by part */
    EF_VEC(combination) heap;
    uint64_t built;
    bool started;
};

ef_composer *ef_composer_new(const ef_partitions *set, uint32_t partition)
{
    ef_composer *c = ef_xcalloc(1, sizeof *c);
    c->set = set;
    c->partition = &set->list.at[partition];
    c->offer = ef_xcalloc(set->part.count + 1, sizeof *c->offer);
    return c;
}

void ef_composer_offer(ef_composer *c, uint32_t part, const ef_part_candidate *candidates, uint32_t count)
{
    part = c->set->part.at[part].like;
    free(c->offer[part].at);
    c->offer[part].at = ef_xcalloc(count + 1, sizeof *candidates);
    memcpy(c->offer[part].at, candidates, count * sizeof *candidates);
    c->offer[part].count = count;
}

static uint32_t like(const ef_composer *c, uint32_t place)
{
    return c->set->part.at[c->partition->part[place]].like;
}

/* ---- the queue ---- */

static bool before(const combination *a, const combination *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->number < b->number);
}

static void push(ef_composer *c, combination x)
{
    x.number = c->built++;
    ef_vec_push(&c->heap, x);
    for (uint32_t i = c->heap.count - 1; i > 0 && before(&c->heap.at[i], &c->heap.at[(i - 1) / 2]); i = (i - 1) / 2) {
        combination swap = c->heap.at[i];
        c->heap.at[i] = c->heap.at[(i - 1) / 2];
        c->heap.at[(i - 1) / 2] = swap;
    }
}

static combination pop(ef_composer *c)
{
    combination top = c->heap.at[0];
    c->heap.at[0] = c->heap.at[--c->heap.count];
    for (uint32_t i = 0;;) {
        uint32_t least = i;
        for (uint32_t k = 2 * i + 1; k <= 2 * i + 2 && k < c->heap.count; k++)
            least = before(&c->heap.at[k], &c->heap.at[least]) ? k : least;
        if (least == i)
            return top;
        combination swap = c->heap.at[i];
        c->heap.at[i] = c->heap.at[least];
        c->heap.at[least] = swap;
        i = least;
    }
}

static void start(ef_composer *c)
{
    uint32_t n = c->partition->parts;
    combination first = {.choice = ef_xcalloc(n + 1, sizeof *first.choice)};
    bool possible = true;
    for (uint32_t i = 0; i < n; i++) {
        possible = possible && c->offer[like(c, i)].count > 0;
        first.cost += possible ? c->offer[like(c, i)].at[0].cost : 0;
    }
    if (possible)
        push(c, first);
    else
        free(first.choice);
}

static void push_successors(ef_composer *c, const combination *x)
{
    uint32_t n = c->partition->parts;
    for (uint32_t i = x->changed; i < n; i++) {
        uint32_t next = x->choice[i] + 1, part = like(c, i);
        if (next >= c->offer[part].count)
            continue;
        combination y = {.choice = ef_xcalloc(n + 1, sizeof *y.choice), .changed = i};
        memcpy(y.choice, x->choice, n * sizeof *y.choice);
        y.choice[i] = next;
        y.cost = x->cost - c->offer[part].at[next - 1].cost + c->offer[part].at[next].cost;
        push(c, y);
    }
}

bool ef_composer_next(ef_composer *c, uint32_t *choice, double *cost)
{
    if (!c->started)
        start(c);
    c->started = true;
    if (c->heap.count == 0)
        return false;
    combination x = pop(c);
    memcpy(choice, x.choice, c->partition->parts * sizeof *choice);
    *cost = x.cost;
    push_successors(c, &x);
    free(x.choice);
    return true;
}

uint64_t ef_composer_built(const ef_composer *c)
{
    return c->built;
}

/* ---- the program of a combination ---- */

/* Puts the candidate of one part into the whole; value[e] is what expression e of the original became. */
static bool place_part(const ef_composer *c, uint32_t place, uint32_t choice, ef_dag *to, ef_expr *value, ef_diag *diag)
{
    const ef_part *part = &c->set->part.at[c->partition->part[place]], *own = &c->set->part.at[part->like];
    const ef_part_candidate *candidate = &c->offer[part->like].at[choice];
    ef_part_translation t = {.to = to,
                             .vars = part->vars,
                             .from_var = own->var,
                             .to_var = part->var,
                             .inputs = part->program->inputs,
                             .from_input = own->program->input};
    ef_expr *input = ef_xcalloc(t.inputs + 1, sizeof *input);
    bool fine = true;
    for (uint32_t i = 0; i < t.inputs; i++)
        input[i] = value[part->input[i]];
    t.to_input = input;
    for (uint32_t i = 0; i < part->program->outputs && fine; i++) {
        ef_expr whole = part->output[i], e = ef_part_translate(&t, candidate->dag, candidate->output[i], diag);
        fine = e != EF_NONE;
        if (fine && ef_dag_type(to, e) != ef_dag_type(c->set->program->dag, whole))
            fine = ef_fail(diag, "a candidate of %s has another type than its output", part->program->name);
        if (fine)
            value[whole] = e;
    }
    free(input);
    return fine;
}

ef_program *ef_composer_program(const ef_composer *c, const uint32_t *choice, ef_diag *diag)
{
    const ef_program *whole = c->set->program;
    uint32_t count = ef_dag_count(whole->dag);
    ef_arena *arena = ef_arena_new();
    ef_program *p = ef_arena_alloc(arena, sizeof *p);
    ef_expr *value = ef_xcalloc(count + 1, sizeof *value);
    bool fine = true;
    *p = (ef_program){.dag = ef_dag_new(ef_dag_ctx(whole->dag)), .arena = arena, .comment = ""};
    p->name = ef_arena_strndup(arena, whole->name, strlen(whole->name));
    p->inputs = whole->inputs;
    p->input = ef_arena_alloc(arena, (p->inputs + 1) * sizeof *p->input);
    memcpy(p->input, whole->input, p->inputs * sizeof *p->input);
    for (ef_expr e = 0; e < count; e++)
        value[e] =
            ef_dag_op(whole->dag, e) == EF_INPUT ? ef_dag_input(p->dag, (uint32_t)ef_dag_attr(whole->dag, e)) : EF_NONE;
    for (uint32_t i = 0; i < c->partition->parts && fine; i++)
        fine = place_part(c, i, choice[i], p->dag, value, diag);
    p->outputs = p->statements = whole->outputs;
    p->output = p->statement = ef_arena_alloc(arena, (p->outputs + 1) * sizeof *p->output);
    for (uint32_t i = 0; i < p->outputs; i++)
        p->output[i] = (ef_named){ef_arena_strndup(arena, whole->output[i].name, strlen(whole->output[i].name)),
                                  value[whole->output[i].expr]};
    free(value);
    if (fine)
        return p;
    ef_program_free(p);
    return NULL;
}

void ef_composer_free(ef_composer *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->set->part.count; i++)
        free(c->offer[i].at);
    for (uint32_t i = 0; i < c->heap.count; i++)
        free(c->heap.at[i].choice);
    ef_vec_free(&c->heap);
    free(c->offer);
    free(c);
}

/* Slots: union-find with products. See dims.h. */
#include "frontend/dims.h"

#include <string.h>

#include "support/hash.h"
#include "support/vec.h"

typedef EF_VEC(ef_slot) slot_list;

typedef struct {
    ef_slot parent;
    uint64_t size;
    ef_slot factor[2];  /* a product: outer and inner, which may be products; else both EF_SLOT_UNIT */
    slot_list together; /* a leaf: slots that stand in a tensor with it */
    slot_list twins;    /* a leaf's, in the order in which they were made */
    ef_slot twin_of;
    uint32_t members; /* slots that became this one */
} slot_info;

struct ef_slots {
    EF_VEC(slot_info) slots;
    ef_intern *pairs; /* pairs that are in `together` already */
};

static ef_slot add(ef_slots *s, uint64_t size)
{
    slot_info info = {.parent = s->slots.count, .size = size, .members = 1};
    ef_vec_push(&s->slots, info);
    return s->slots.count - 1;
}

ef_slots *ef_slots_new(void)
{
    ef_slots *s = ef_xcalloc(1, sizeof *s);
    s->pairs = ef_intern_new();
    add(s, 1);
    return s;
}

void ef_slots_free(ef_slots *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->slots.count; i++) {
        ef_vec_free(&s->slots.at[i].together);
        ef_vec_free(&s->slots.at[i].twins);
    }
    ef_vec_free(&s->slots);
    ef_intern_free(s->pairs);
    free(s);
}

uint32_t ef_slots_count(const ef_slots *s)
{
    return s->slots.count;
}

ef_slot ef_slot_new(ef_slots *s, uint64_t size)
{
    return size == 1 ? EF_SLOT_UNIT : add(s, size);
}

uint64_t ef_slot_size(const ef_slots *s, ef_slot slot)
{
    return s->slots.at[slot].size;
}

ef_slot ef_slot_find(ef_slots *s, ef_slot slot)
{
    slot_info *at = s->slots.at;
    while (at[slot].parent != slot)
        slot = at[slot].parent = at[at[slot].parent].parent;
    return slot;
}

static bool is_product(const ef_slots *s, ef_slot root)
{
    return s->slots.at[root].factor[0] != EF_SLOT_UNIT;
}

static bool push_leaves(ef_slots *s, ef_slot slot, ef_slot *leaf, unsigned *count)
{
    ef_slot root = ef_slot_find(s, slot);
    if (root == EF_SLOT_UNIT)
        return true;
    if (is_product(s, root))
        return push_leaves(s, s->slots.at[root].factor[0], leaf, count) &&
               push_leaves(s, s->slots.at[root].factor[1], leaf, count);
    if (*count == EF_SLOT_LEAVES)
        return false;
    leaf[(*count)++] = root;
    return true;
}

unsigned ef_slot_leaves(ef_slots *s, const ef_slot *slot, unsigned count, ef_slot *leaf)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (!push_leaves(s, slot[i], leaf, &n))
            return 0;
    return n;
}

bool ef_slot_overlap(ef_slots *s, ef_slot a, ef_slot b)
{
    ef_slot x[EF_SLOT_LEAVES], y[EF_SLOT_LEAVES];
    unsigned nx = ef_slot_leaves(s, &a, 1, x), ny = ef_slot_leaves(s, &b, 1, y);
    for (unsigned i = 0; i < nx; i++)
        for (unsigned k = 0; k < ny; k++)
            if (x[i] == y[k])
                return true;
    return false;
}

bool ef_slot_equal(ef_slots *s, ef_slot a, ef_slot b)
{
    ef_slot x[EF_SLOT_LEAVES], y[EF_SLOT_LEAVES];
    if (ef_slot_find(s, a) == ef_slot_find(s, b))
        return true;
    unsigned n = ef_slot_leaves(s, &a, 1, x);
    return n && n == ef_slot_leaves(s, &b, 1, y) && memcmp(x, y, n * sizeof *x) == 0;
}

/* ---- what stands together ---- */

static void note_pair(ef_slots *s, ef_slot a, ef_slot b)
{
    ef_slot key[2] = {a < b ? a : b, a < b ? b : a};
    int fresh;
    ef_intern_put(s->pairs, key, sizeof key, &fresh);
    if (!fresh)
        return;
    ef_vec_push(&s->slots.at[a].together, b);
    ef_vec_push(&s->slots.at[b].together, a);
}

bool ef_slot_together(ef_slots *s, const ef_slot *slot, unsigned count)
{
    ef_slot leaf[EF_SLOT_LEAVES];
    unsigned n = ef_slot_leaves(s, slot, count, leaf);
    bool once = true;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < i; k++) {
            once = once && leaf[i] != leaf[k];
            if (leaf[i] != leaf[k])
                note_pair(s, leaf[i], leaf[k]);
        }
    return once;
}

/* Whether some tensor has both leaves. */
static bool stand_together(ef_slots *s, ef_slot a, ef_slot b)
{
    bool a_shorter = s->slots.at[a].together.count < s->slots.at[b].together.count;
    const slot_list *list = &s->slots.at[a_shorter ? a : b].together;
    ef_slot other = a_shorter ? b : a, leaf[EF_SLOT_LEAVES];
    for (uint32_t i = 0; i < list->count; i++) {
        unsigned n = ef_slot_leaves(s, &list->at[i], 1, leaf);
        for (unsigned k = 0; k < n; k++)
            if (leaf[k] == other)
                return true;
    }
    return false;
}

/* ---- unification ---- */

/* Whether two lists of leaves with one product align: from the outside in, the smaller of two factors divides the
 * larger, and no leaf meets one that stands together with it, or itself at another place. */
static bool aligns(ef_slots *s, const ef_slot *a, unsigned na, const ef_slot *b, unsigned nb)
{
    uint64_t left_a = 1, left_b = 1; /* of the current factors */
    unsigned i = 0, k = 0;
    bool whole = true; /* both current factors begin here */
    while (i < na && k < nb) {
        left_a = left_a == 1 ? ef_slot_size(s, a[i]) : left_a;
        left_b = left_b == 1 ? ef_slot_size(s, b[k]) : left_b;
        uint64_t small = left_a < left_b ? left_a : left_b;
        if (left_a % small || left_b % small)
            return false;
        if (a[i] == b[k] ? !(whole && left_a == left_b) : stand_together(s, a[i], b[k]))
            return false;
        left_a /= small;
        left_b /= small;
        i += left_a == 1;
        k += left_b == 1;
        whole = left_a == 1 && left_b == 1;
    }
    return i == na && k == nb;
}

/* A leaf becomes the product of two new ones, which stand where it stood. Returns the outer one, of size `outer`. */
static ef_slot split(ef_slots *s, ef_slot leaf, uint64_t outer)
{
    ef_slot part[2] = {add(s, outer), add(s, s->slots.at[leaf].size / outer)};
    for (unsigned p = 0; p < 2; p++) {
        for (uint32_t i = 0; i < s->slots.at[leaf].together.count; i++)
            ef_vec_push(&s->slots.at[part[p]].together, s->slots.at[leaf].together.at[i]);
        s->slots.at[leaf].factor[p] = part[p];
    }
    note_pair(s, part[0], part[1]);
    return part[0];
}

/* Whether a dimension is a twin of another one, or of a twin of it. */
static bool is_twin_of(ef_slots *s, ef_slot slot, ef_slot leaf)
{
    for (slot = ef_slot_find(s, slot); slot != EF_SLOT_UNIT; slot = ef_slot_find(s, s->slots.at[slot].twin_of))
        if (slot == leaf)
            return true;
    return false;
}

static void join_leaves(ef_slots *s, ef_slot a, ef_slot b)
{
    ef_slot keep = a < b ? a : b, gone = a < b ? b : a;
    slot_info *k = &s->slots.at[keep], *g = &s->slots.at[gone];
    if (keep == gone)
        return;
    g->parent = keep;
    for (uint32_t i = 0; i < g->together.count; i++)
        ef_vec_push(&k->together, g->together.at[i]);
    for (uint32_t i = 0; i < g->twins.count; i++)
        ef_vec_push(&k->twins, g->twins.at[i]);
    ef_vec_free(&g->together);
    ef_vec_free(&g->twins);
    k->members += g->members;
    if (k->twin_of == EF_SLOT_UNIT && !is_twin_of(s, g->twin_of, keep))
        k->twin_of = g->twin_of;
}

/* Carries out what `aligns` has allowed. */
static void align(ef_slots *s, const ef_slot *a, unsigned na, const ef_slot *b, unsigned nb)
{
    unsigned i = 0, k = 0;
    ef_slot x = EF_SLOT_UNIT, y = EF_SLOT_UNIT; /* current factors, or what is left of them */
    while (i < na && k < nb) {
        x = x == EF_SLOT_UNIT ? a[i] : x;
        y = y == EF_SLOT_UNIT ? b[k] : y;
        uint64_t size_x = ef_slot_size(s, x), size_y = ef_slot_size(s, y);
        ef_slot rest_x = EF_SLOT_UNIT, rest_y = EF_SLOT_UNIT;
        if (size_x > size_y) {
            ef_slot outer = split(s, x, size_y);
            rest_x = s->slots.at[x].factor[1];
            x = outer;
        } else if (size_y > size_x) {
            ef_slot outer = split(s, y, size_x);
            rest_y = s->slots.at[y].factor[1];
            y = outer;
        }
        join_leaves(s, x, y);
        x = rest_x;
        y = rest_y;
        i += x == EF_SLOT_UNIT;
        k += y == EF_SLOT_UNIT;
    }
}

bool ef_slot_unify(ef_slots *s, ef_slot a, ef_slot b)
{
    ef_slot x[EF_SLOT_LEAVES], y[EF_SLOT_LEAVES];
    if (ef_slot_find(s, a) == ef_slot_find(s, b))
        return true;
    unsigned nx = ef_slot_leaves(s, &a, 1, x), ny = ef_slot_leaves(s, &b, 1, y);
    if (ef_slot_size(s, a) != ef_slot_size(s, b) || !nx || !ny || !aligns(s, x, nx, y, ny))
        return false;
    align(s, x, nx, y, ny);
    return true;
}

/* ---- twins ---- */

ef_slot ef_slot_twin(ef_slots *s, ef_slot slot, unsigned which)
{
    ef_slot root = ef_slot_find(s, slot);
    if (root == EF_SLOT_UNIT)
        return root;
    if (is_product(s, root)) {
        ef_slot outer = ef_slot_twin(s, s->slots.at[root].factor[0], which);
        ef_slot inner = ef_slot_twin(s, s->slots.at[root].factor[1], which), whole = add(s, s->slots.at[root].size);
        s->slots.at[whole].factor[0] = outer;
        s->slots.at[whole].factor[1] = inner;
        return whole;
    }
    while (s->slots.at[root].twins.count <= which) {
        ef_slot twin = add(s, s->slots.at[root].size);
        s->slots.at[twin].twin_of = root;
        ef_vec_push(&s->slots.at[root].twins, twin);
    }
    return s->slots.at[root].twins.at[which];
}

/* Whether the slot could be unified with a twin that the leaf has already. */
static bool join_twin(ef_slots *s, ef_slot leaf, ef_slot slot)
{
    for (uint32_t i = 0; i < s->slots.at[leaf].twins.count; i++)
        if (ef_slot_unify(s, s->slots.at[leaf].twins.at[i], slot))
            return true;
    return false;
}

void ef_slot_tie(ef_slots *s, ef_slot a, ef_slot b)
{
    a = ef_slot_find(s, a);
    b = ef_slot_find(s, b);
    if (a == b || a == EF_SLOT_UNIT || b == EF_SLOT_UNIT || is_product(s, a) || is_product(s, b) ||
        s->slots.at[a].size != s->slots.at[b].size || join_twin(s, a, b) || join_twin(s, b, a))
        return;
    ef_slot older = a < b ? a : b, newer = a < b ? b : a;
    if (s->slots.at[newer].twin_of != EF_SLOT_UNIT || is_twin_of(s, older, newer))
        return;
    s->slots.at[newer].twin_of = older;
    ef_vec_push(&s->slots.at[older].twins, newer);
}

ef_slot ef_slot_twin_of(ef_slots *s, ef_slot leaf)
{
    return ef_slot_find(s, s->slots.at[leaf].twin_of);
}

unsigned ef_slot_members(ef_slots *s, ef_slot leaf)
{
    return s->slots.at[leaf].members;
}

/* ---- reshape ---- */

/* The product of slots, outermost first. */
static ef_slot product(ef_slots *s, const ef_slot *slot, unsigned count)
{
    ef_slot whole = EF_SLOT_UNIT;
    for (unsigned i = count; i-- > 0;) {
        if (slot[i] == EF_SLOT_UNIT)
            continue;
        if (whole != EF_SLOT_UNIT) {
            ef_slot made = add(s, ef_slot_size(s, slot[i]) * ef_slot_size(s, whole));
            s->slots.at[made].factor[0] = slot[i];
            s->slots.at[made].factor[1] = whole;
            whole = made;
        } else
            whole = slot[i];
    }
    return whole;
}

/* One group of a reshape: in[0..na) and size[0..nb) have one product, and no shorter prefixes of both have. */
static void reshape_group(ef_slots *s, const ef_slot *in, unsigned na, const uint64_t *size, unsigned nb, ef_slot *out)
{
    ef_slot leaf[EF_SLOT_LEAVES], fresh[EF_MAX_RANK];
    unsigned n = ef_slot_leaves(s, in, na, leaf);
    for (unsigned k = 0; k < nb; k++)
        out[k] = EF_SLOT_UNIT;
    if (nb == 1 && n && n <= EF_MAX_ATOMS) {
        out[0] = product(s, in, na);
        return;
    }
    for (unsigned k = 0; k < nb; k++)
        out[k] = fresh[k] = ef_slot_new(s, size[k]);
    if (nb > 1 && n && aligns(s, leaf, n, fresh, nb))
        align(s, leaf, n, fresh, nb);
}

void ef_slot_reshape(ef_slots *s, const ef_slot *in, unsigned in_count, const uint64_t *size, unsigned count,
                     ef_slot *out)
{
    unsigned i = 0, k = 0;
    while (i < in_count || k < count) {
        unsigned from_i = i, from_k = k, kept = 0;
        uint64_t a = 1, b = 1, group[EF_MAX_RANK];
        ef_slot made[EF_MAX_RANK];
        do { /* extend the side that is behind until both products agree */
            if (i < in_count && (a <= b || k == count))
                a *= ef_slot_size(s, in[i++]);
            else if (k < count)
                b *= size[k++];
        } while (a != b && (i < in_count || k < count));
        for (unsigned j = from_k; j < k; j++) /* units are no factors */
            if (size[j] != 1)
                group[kept++] = size[j];
        reshape_group(s, in + from_i, i - from_i, group, kept, made);
        for (unsigned j = from_k, at = 0; j < k; j++)
            out[j] = size[j] == 1 ? EF_SLOT_UNIT : made[at++];
    }
}

/* Canonical forms: what ~ compares (paper, section 5.1).
 *
 * Products and sums are flat: the hashes of their members are added, those of divisors and subtrahends apart, so that
 * order and grouping do not matter. Nothing cancels: x / x still depends on x, and a hole in it must stay visible. The
 * form of an operator is a function of the forms of its operands alone, so equal parts may stand for each other.
 * Loads are atoms: the stored slot, and the axes of the view that cut something of it.
 *
 * The ORGANISATION of a kernel is its form up to pointwise algebra: what is loaded, reduced and contracted, and from
 * which of these each pointwise expression is computed, but not how. */
#include "search/extract_private.h"

static ef_form atom(uint64_t h0, uint64_t h1)
{
    return (ef_form){.kind = EF_FORM_ATOM, .over = {h0, h1}};
}

/* A form as a member of a product or sum. */
static ef_form member(ef_form f, ef_form_kind of)
{
    if (f.kind == of)
        return f;
    return (ef_form){of,
                     {ef_mix(ef_mix(ef_mix(0x61, f.over[0]), f.under[0]), f.kind),
                      ef_mix(ef_mix(ef_mix(0x62, f.over[1]), f.under[1]), f.kind)},
                     {0, 0}};
}

static ef_form inverse(ef_form f)
{
    return (ef_form){f.kind, {f.under[0], f.under[1]}, {f.over[0], f.over[1]}};
}

static ef_form join(ef_form a, ef_form b)
{
    return (ef_form){
        a.kind, {a.over[0] + b.over[0], a.over[1] + b.over[1]}, {a.under[0] + b.under[0], a.under[1] + b.under[1]}};
}

/* One hash of a form, the same for a thing and the product that has it as its only factor. */
void ef_form_hash(ef_form f, uint64_t out[2])
{
    f = member(f, EF_FORM_PRODUCT);
    out[0] = ef_mix(ef_mix(0x51, f.over[0]), f.under[0]);
    out[1] = ef_mix(ef_mix(0x52, f.over[1]), f.under[1]);
}

/* The form of an operator that is neither a product nor a sum. */
static ef_form form_of_other(ef_op op, uint64_t attr, const ef_form *x, unsigned count)
{
    uint64_t h[2], sum[2] = {0, 0};
    ef_form f = atom(ef_mix(ef_mix(0x81, op), attr), ef_mix(ef_mix(0x82, op), attr));
    for (unsigned i = 0; i < count; i++) {
        ef_form_hash(x[i], h);
        sum[0] += h[0], sum[1] += h[1];
        if (!ef_op_commutative(op))
            f.over[0] = ef_mix(f.over[0], h[0]), f.over[1] = ef_mix(f.over[1], h[1]);
    }
    if (ef_op_commutative(op))
        f.over[0] = ef_mix(f.over[0], sum[0]), f.over[1] = ef_mix(f.over[1], sum[1]);
    return f;
}

static ef_form form_of(ef_op op, uint64_t attr, const ef_form *x, unsigned count)
{
    uint64_t h[2];
    switch (op) {
    case EF_MUL: return join(member(x[0], EF_FORM_PRODUCT), member(x[1], EF_FORM_PRODUCT));
    case EF_DIV: return join(member(x[0], EF_FORM_PRODUCT), inverse(member(x[1], EF_FORM_PRODUCT)));
    case EF_RECIP: return inverse(member(x[0], EF_FORM_PRODUCT));
    case EF_ADD: return join(member(x[0], EF_FORM_SUM), member(x[1], EF_FORM_SUM));
    case EF_SUB: return join(member(x[0], EF_FORM_SUM), inverse(member(x[1], EF_FORM_SUM)));
    case EF_NEG: return inverse(member(x[0], EF_FORM_SUM));
    case EF_SQRT:
    case EF_RSQRT: {
        ef_form_hash(x[0], h);
        ef_form root = member(atom(ef_mix(0x71, h[0]), ef_mix(0x72, h[1])), EF_FORM_PRODUCT);
        return op == EF_RSQRT ? inverse(root) : root;
    }
    default: return form_of_other(op, attr, x, count);
    }
}

/* The number that says what a load loads, and how it is cut. */
static uint64_t load_key(ef_extractor *x, const ef_option *o)
{
    ef_slot_id stored = x->child.at[o->first];
    ef_axes axes =
        o->node == EF_NONE ? 0 : ef_type_cutting(x->ctx, (ef_axes)ef_option_attr(x, o), ef_slot_type(x, stored));
    return (uint64_t)axes << 32 | x->slots.at[stored].class;
}

/* What fills a slot that leaves no choice and is therefore never picked: a constant. */
static const ef_option *constant(const ef_extractor *x, ef_slot_id id)
{
    const ef_eslot *s = &x->slots.at[id];
    const ef_option *o = s->count == 1 ? ef_option_at(x, s->first) : NULL;
    return o && o->kind == EF_OPTION_LEAF ? o : NULL;
}

/* ---- forms ---- */

static ef_form form_of_cone(ef_extractor *x, uint32_t cone)
{
    const ef_cone *c = &x->cones.at[cone];
    const ef_option *o = ef_option_at(x, c->option);
    ef_form operand[EF_CONE_OPERANDS];
    if (x->cone_stamp[cone] == x->epoch)
        return x->cone_form[cone];
    for (unsigned i = 0; i < o->count; i++)
        operand[i] =
            c->inner[i] == EF_NONE ? ef_form_of_slot(x, x->child.at[o->first + i]) : form_of_cone(x, c->inner[i]);
    ef_form f = operand[0];
    if (ef_option_op(x, o) != EF_VIEW)
        f = form_of(ef_option_op(x, o), ef_option_attr(x, o), operand, o->count);
    x->cone_stamp[cone] = x->epoch;
    x->cone_form[cone] = f;
    return f;
}

static ef_form form_of_option(ef_extractor *x, const ef_option *o)
{
    ef_form operand[EF_MAX_CHILDREN];
    if (o->kind == EF_OPTION_LOADS)
        return atom(ef_mix(0xa1, load_key(x, o)), ef_mix(0xa2, load_key(x, o)));
    for (unsigned i = 0; i < o->count; i++)
        operand[i] = ef_form_of_slot(x, x->child.at[o->first + i]);
    return form_of(ef_option_op(x, o), ef_option_attr(x, o), operand, o->count);
}

/* Memoised by x->stamp in the current x->epoch. */
ef_form ef_form_of_slot(ef_extractor *x, ef_slot_id id)
{
    if (x->stamp[id] == x->epoch)
        return x->form[id];
    const ef_way *w = ef_picked(x, id);
    const ef_option *only = constant(x, id);
    ef_form f;
    if (only)
        f = form_of_option(x, only);
    else if (!w)
        f = atom(ef_mix(0xabc1, id), ef_mix(0xabc2, id)); /* a hole */
    else
        f = w->option == EF_NONE ? form_of_cone(x, w->cone) : form_of_option(x, ef_option_at(x, w->option));
    x->form[id] = f;
    x->stamp[id] = x->epoch;
    return f;
}

/* ---- organisations ---- */

/* Adds the operands of a pointwise expression to a set, each once, by their hashes. */
uint64_t ef_organisation_of_slot(ef_extractor *x, ef_slot_id id)
{
    if (x->stamp[id] == x->epoch)
        return x->form[id].over[0];
    const ef_way *w = ef_picked(x, id);
    const ef_option *o = w && w->option != EF_NONE ? ef_option_at(x, w->option) : constant(x, id);
    uint64_t h = 0x33, member_hash[EF_CONE_LEAVES];
    if (o && o->kind == EF_OPTION_LOADS) {
        h = ef_mix(0xa1, load_key(x, o));
    } else if (o) {
        h = ef_mix(ef_mix(0x81, ef_option_op(x, o)), ef_option_attr(x, o));
        for (unsigned i = 0; i < o->count; i++)
            h = ef_mix(h, ef_organisation_of_slot(x, x->child.at[o->first + i]));
    } else {
        for (uint32_t i = 0; w && i < w->count; i++) {
            bool again = false;
            member_hash[i] = ef_organisation_of_slot(x, x->child.at[w->first + i]);
            for (uint32_t k = 0; k < i; k++)
                again = again || member_hash[k] == member_hash[i];
            h += again ? 0 : ef_mix(0x44, member_hash[i]);
        }
    }
    x->form[id].over[0] = h;
    x->stamp[id] = x->epoch;
    return h;
}

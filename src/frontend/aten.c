/* Finding an operator's row, reading a node's arguments, giving its results. See aten.h. */
#include "frontend/aten.h"

#include <string.h>

/* ---- the table ---- */

/* "aten.add_.Tensor" is "add", "aten.__and__.Tensor" is "__and__". */
static unsigned base_name(const char *target, const char **name)
{
    if (strncmp(target, "aten.", 5) != 0)
        return 0;
    *name = target + 5;
    unsigned length = (unsigned)strcspn(*name, ".");
    if (length > 1 && (*name)[length - 1] == '_' && (*name)[length - 2] != '_')
        length--;
    return length;
}

const ef_aten_row *ef_aten_find(const char *target)
{
    static const ef_aten_row *const tables[] = {ef_aten_pointwise,      ef_aten_reductions, ef_aten_products,
                                                ef_aten_normalisations, ef_aten_views,      ef_aten_constructors};
    const char *name;
    unsigned length = base_name(target, &name);
    for (unsigned i = 0; length && i < sizeof tables / sizeof *tables; i++)
        for (const ef_aten_row *row = tables[i]; row->name; row++)
            if (strncmp(row->name, name, length) == 0 && row->name[length] == 0)
                return row;
    return NULL;
}

ef_dtype ef_aten_type(ef_xscalar scalar)
{
    switch (scalar) {
    case EF_X_BOOL: return EF_BOOL;
    case EF_X_INT32: return EF_I32;
    case EF_X_INT64: return EF_I64;
    case EF_X_FLOAT16: return EF_F16;
    case EF_X_BFLOAT16: return EF_BF16;
    case EF_X_FLOAT32: return EF_F32;
    case EF_X_FLOAT64: return EF_F64;
    default: return EF_DTYPE_COUNT;
    }
}

/* ---- arguments ---- */

static const ef_xarg *argument(const ef_aten *c, const char *name, uint32_t position)
{
    const ef_xarg *arg = ef_xnode_arg(c->node, name, position);
    return arg && arg->kind != EF_XA_NONE ? arg : NULL;
}

bool ef_aten_has(const ef_aten *c, const char *name, uint32_t position)
{
    return argument(c, name, position) != NULL;
}

#define MOST_EXACT (INT64_C(1) << 53) /* numbers are float64 */

/* Whether an argument is a number that is known, and which. Integers that no float64 is are none. */
static bool number_of(const ef_xarg *arg, double *number)
{
    if (!arg || (arg->kind != EF_XA_INT && arg->kind != EF_XA_FLOAT && arg->kind != EF_XA_BOOL))
        return false;
    if (arg->kind == EF_XA_INT && (arg->integer > MOST_EXACT || arg->integer < -MOST_EXACT))
        return false;
    *number = arg->kind == EF_XA_INT     ? (double)arg->integer
              : arg->kind == EF_XA_FLOAT ? arg->number
                                         : (double)arg->boolean;
    return true;
}

ef_dn ef_aten_operand(ef_aten *c, const char *name, uint32_t position)
{
    const ef_xarg *arg = argument(c, name, position);
    double number;
    if (number_of(arg, &number))
        return ef_dn_number(c->draft, number);
    return arg && arg->kind == EF_XA_TENSOR ? c->read(c->user, arg->value) : EF_NONE;
}

unsigned ef_aten_operands(ef_aten *c, const char *name, uint32_t position, ef_dn *x, unsigned count)
{
    const ef_xarg *arg = argument(c, name, position);
    if (!arg || (arg->kind != EF_XA_TENSORS && arg->kind != EF_XA_OPTIONAL_TENSORS) || arg->count > count)
        return 0;
    for (uint32_t i = 0; i < arg->count; i++)
        if (arg->values[i] == EF_NONE || (x[i] = c->read(c->user, arg->values[i])) == EF_NONE)
            return 0;
    return arg->count;
}

double ef_aten_number(const ef_aten *c, const char *name, uint32_t position, double none)
{
    double number;
    return number_of(argument(c, name, position), &number) ? number : none;
}

int64_t ef_aten_int(const ef_aten *c, const char *name, uint32_t position, int64_t none)
{
    const ef_xarg *arg = argument(c, name, position);
    return arg && arg->kind == EF_XA_INT ? arg->integer : none;
}

bool ef_aten_flag(const ef_aten *c, const char *name, uint32_t position, bool none)
{
    const ef_xarg *arg = argument(c, name, position);
    return arg && arg->kind == EF_XA_BOOL ? arg->boolean : none;
}

const char *ef_aten_text(const ef_aten *c, const char *name, uint32_t position, const char *none)
{
    const ef_xarg *arg = argument(c, name, position);
    return arg && arg->kind == EF_XA_STRING ? arg->text : none;
}

unsigned ef_aten_ints(const ef_aten *c, const char *name, uint32_t position, int64_t *list, unsigned count, bool *given)
{
    const ef_xarg *arg = argument(c, name, position);
    bool is_one = arg && arg->kind == EF_XA_INT, is_list = arg && arg->kind == EF_XA_INTS;
    unsigned n = is_one ? 1 : is_list ? arg->count : 0;
    if (given)
        *given = (is_one || is_list) && n <= count;
    if (n > count)
        return 0;
    for (unsigned i = 0; i < n; i++)
        list[i] = is_one ? arg->integer : arg->integers[i];
    return n;
}

unsigned ef_aten_dim(int64_t dim, unsigned rank)
{
    int64_t range = rank ? rank : 1; /* a tensor without dimensions takes 0 and -1 */
    if (dim < -range || dim >= range)
        return EF_MAX_RANK;
    return (unsigned)(range - 1 - (dim < 0 ? dim + range : dim));
}

/* ---- operands and results ---- */

unsigned ef_aten_rank(const ef_aten *c, ef_dn x)
{
    return x == EF_NONE ? 0 : c->draft->nodes.at[x].rank;
}

unsigned ef_aten_sizes(const ef_aten *c, ef_dn x, int64_t *size)
{
    unsigned rank = ef_aten_rank(c, x);
    for (unsigned i = 0; i < rank; i++)
        size[i] = (int64_t)ef_dn_size(c->draft, x, rank - 1 - i);
    return rank;
}

ef_dtype ef_aten_dtype(const ef_aten *c, ef_dn x)
{
    return x == EF_NONE ? EF_NUM : (ef_dtype)c->draft->nodes.at[x].dtype;
}

ef_dtype ef_aten_result_type(const ef_aten *c, uint32_t k)
{
    uint32_t value = k < c->results ? c->value[k] : EF_NONE;
    return value == EF_NONE ? EF_F32 : ef_aten_type(c->exported->value[value].dtype);
}

unsigned ef_aten_result_sizes(const ef_aten *c, uint32_t k, int64_t *size)
{
    const ef_xvalue *v = k < c->results && c->value[k] != EF_NONE ? &c->exported->value[c->value[k]] : NULL;
    unsigned rank = v && v->rank <= EF_MAX_RANK ? v->rank : 0;
    for (unsigned i = 0; i < rank; i++)
        size[i] = v->size[i];
    return rank;
}

bool ef_aten_refuse(ef_aten *c, const char *reason)
{
    if (!c->reason)
        c->reason = reason;
    return false;
}

bool ef_aten_give(ef_aten *c, uint32_t k, ef_dn x)
{
    if (x == EF_NONE)
        return ef_aten_refuse(c, "the IR cannot hold its operands or its result");
    if (k < c->results)
        c->result[k] = x;
    return true;
}

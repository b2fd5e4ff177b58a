/* Scalar terms of repair functions: see reducer.h. */
#include <string.h>

#include "ir/context.h"

static ef_scalar intern(ef_ctx *ctx, const ef_scalar_info *info)
{
    return ef_intern_put(ctx->scalars, info, sizeof *info, NULL);
}

ef_scalar ef_scalar_param(ef_ctx *ctx, ef_param param, uint32_t index)
{
    ef_scalar_info info;
    memset(&info, 0, sizeof info); /* padding takes part in the hash */
    info.kind = EF_SCALAR_PARAM;
    info.param = param;
    info.index = index;
    return intern(ctx, &info);
}

ef_scalar ef_scalar_const(ef_ctx *ctx, double value)
{
    ef_scalar_info info;
    memset(&info, 0, sizeof info);
    info.kind = EF_SCALAR_CONST;
    info.value = ef_attr_to_number(ef_attr_number(value));
    return intern(ctx, &info);
}

ef_scalar ef_scalar_apply(ef_ctx *ctx, ef_op op, const ef_scalar *operands)
{
    ef_scalar_info info;
    memset(&info, 0, sizeof info);
    info.kind = EF_SCALAR_APPLY;
    info.op = op;
    info.operands = (uint32_t)ef_ops[op].arity;
    for (unsigned i = 0; i < info.operands; i++)
        info.operand[i] = operands[i];
    return intern(ctx, &info);
}

const ef_scalar_info *ef_scalar_at(const ef_ctx *ctx, ef_scalar scalar)
{
    return ef_intern_at(ctx->scalars, scalar, NULL);
}

double ef_scalar_eval(const ef_ctx *ctx, ef_scalar scalar, double c, const double *s, const double *t)
{
    const ef_scalar_info *info = ef_scalar_at(ctx, scalar);
    double x[3] = {0};
    switch (info->kind) {
    case EF_SCALAR_CONST: return info->value;
    case EF_SCALAR_PARAM:
        return info->param == EF_PARAM_C ? c : info->param == EF_PARAM_S ? s[info->index] : t[info->index];
    case EF_SCALAR_APPLY: break;
    }
    for (unsigned i = 0; i < info->operands; i++)
        x[i] = ef_scalar_eval(ctx, info->operand[i], c, s, t);
    return ef_op_apply(info->op, 0, x);
}

void ef_scalar_print(const ef_ctx *ctx, ef_scalar scalar, unsigned producer_leaves, ef_strbuf *out)
{
    const ef_scalar_info *info = ef_scalar_at(ctx, scalar);
    switch (info->kind) {
    case EF_SCALAR_CONST: ef_strbuf_double(out, info->value); return;
    case EF_SCALAR_PARAM:
        ef_strbuf_puts(out, info->param == EF_PARAM_C ? "c" : info->param == EF_PARAM_S ? "s" : "t");
        if (info->param != EF_PARAM_C && producer_leaves > 1)
            ef_strbuf_printf(out, "%u", info->index);
        return;
    case EF_SCALAR_APPLY: break;
    }
    ef_strbuf_printf(out, "%s(", ef_ops[info->op].name);
    for (unsigned i = 0; i < info->operands; i++) {
        ef_strbuf_puts(out, i ? ", " : "");
        ef_scalar_print(ctx, info->operand[i], producer_leaves, out);
    }
    ef_strbuf_puts(out, ")");
}

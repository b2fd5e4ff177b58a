/* What a caller of printed PyTorch source must know: see torch.h for INPUTS, OUTPUTS, DRAWS and BATCH.
 *
 * A dimension is in BATCH when no operator mixes positions along it or knows which one it is at: then every piece along
 * it can be computed by itself. */
#include <inttypes.h>
#include <stdlib.h>

#include "codegen/torch_print.h"
#include "codegen/verify.h"
#include "ir/independent.h"

static void print_signature(const ef_torch *p, const char *title, const char *name, ef_type id)
{
    const ef_type_info *type = ef_type_at(p->ctx, id);
    if (title)
        ef_strbuf_printf(p->out, "%s = [\n", title);
    ef_strbuf_printf(p->out, "    (\"%s\", \"%s\", (", name,
                     type->dtype == EF_NUM ? "f32" : ef_dtype_names[type->dtype]);
    for (unsigned d = type->rank; d-- > 0;)
        ef_strbuf_printf(p->out, "%" PRIu64 "%s", ef_dim_extent(p->ctx, type->dim[d]),
                         d || type->rank == 1 ? ", " : "");
    ef_strbuf_puts(p->out, ")),\n");
}

static void print_signatures(const ef_torch *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++)
        print_signature(p, i ? NULL : "INPUTS", ef_input_name(p->ctx, p->program->input[i]),
                        ef_input_type(p->ctx, p->program->input[i]));
    ef_strbuf_puts(p->out, p->program->inputs ? "]\n" : "INPUTS = []\n");
    for (uint32_t i = 0; i < p->program->outputs; i++)
        print_signature(p, i ? NULL : "OUTPUTS", p->program->output[i].name,
                        ef_dag_type(p->dag, p->program->output[i].expr));
    ef_strbuf_puts(p->out, "]\n");
}

/* See ef_program_summed. */
static void print_summed(const ef_torch *p)
{
    uint64_t summed = ef_program_summed(p->program);
    bool any = false;
    ef_strbuf_puts(p->out, "SUMMED = [");
    for (uint32_t i = 0; i < 64; i++)
        if (summed >> i & 1) {
            ef_strbuf_printf(p->out, "%s%" PRIu32, any ? ", " : "", i);
            any = true;
        }
    ef_strbuf_puts(p->out, "]\n");
}

/* See ef_program_fan_in; 1: no weight. */
static void print_fan_in(const ef_torch *p)
{
    ef_dim *fan_in = ef_xcalloc(p->program->inputs + 1, sizeof *fan_in);
    ef_program_fan_in(p->program, fan_in);
    ef_strbuf_puts(p->out, "FAN_IN = [");
    for (uint32_t i = 0; i < p->program->inputs; i++)
        ef_strbuf_printf(p->out, "%s%" PRIu64, i ? ", " : "", ef_dim_extent(p->ctx, fan_in[i]));
    ef_strbuf_puts(p->out, "]\n");
    free(fan_in);
}

static void print_draws(const ef_torch *p)
{
    ef_strbuf_puts(p->out, "DRAWS = {\n");
    for (ef_draw draw = 0; draw < EF_DRAW_COUNT; draw++) {
        ef_strbuf_printf(p->out, "    \"%s\": ((", ef_draw_names[draw]);
        for (unsigned i = 0; i < EF_DRAW_SCALES; i++)
            ef_strbuf_printf(p->out, "%s%.9g", i ? ", " : "", ef_draw_scale(draw, i));
        ef_strbuf_printf(p->out, "), %.9g, %s),\n", ef_draw_error_limit(draw), ef_draw_is_far(draw) ? "True" : "False");
    }
    ef_strbuf_puts(p->out, "}\n");
}

static void print_batches(const ef_torch *p)
{
    bool *needed = ef_program_needed(p->program);
    ef_strbuf_puts(p->out, "BATCH = {\n");
    for (ef_var var = 0; var < ef_var_count(p->ctx); var++) {
        if (!ef_independent(p->program, needed, var, false))
            continue;
        ef_strbuf_printf(p->out, "    \"%s\": ([", ef_var_at(p->ctx, var)->name);
        for (uint32_t i = 0; i < p->program->inputs; i++) {
            int place = ef_independent_place(p->ctx, ef_input_type(p->ctx, p->program->input[i]), var);
            ef_strbuf_puts(p->out, i ? ", " : "");
            if (place < 0)
                ef_strbuf_puts(p->out, "None");
            else
                ef_strbuf_printf(p->out, "%d", place);
        }
        ef_strbuf_puts(p->out, "], [");
        for (uint32_t i = 0; i < p->program->outputs; i++)
            ef_strbuf_printf(p->out, "%s%d", i ? ", " : "",
                             ef_independent_place(p->ctx, ef_dag_type(p->dag, p->program->output[i].expr), var));
        ef_strbuf_puts(p->out, "]),\n");
    }
    ef_strbuf_puts(p->out, "}\n");
    free(needed);
}

void ef_torch_lists(const ef_torch *p)
{
    print_signatures(p);
    print_summed(p);
    print_fan_in(p);
    print_draws(p);
    print_batches(p);
}

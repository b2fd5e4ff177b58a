/* The Triton generator: see triton.h. This file prints the module around the kernels. */
#include "codegen/triton.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

/* ---- the head ---- */

static const char *torch_dtype(ef_dtype dtype)
{
    return dtype == EF_BOOL ? "bool" : ef_t_dtype(dtype);
}

static void print_shape(const ef_kgraph *g, const ef_schedule *s, const ef_dim *dim, unsigned rank, ef_strbuf *out)
{
    ef_strbuf_puts(out, "(");
    for (unsigned i = rank; i-- > 0;)
        ef_strbuf_printf(out, "%" PRIu64 "%s", ef_sched_dim(g, s, dim[i]), rank == 1 ? "," : i ? ", " : "");
    ef_strbuf_puts(out, ")");
}

/* What was chosen, in lines of readable length. */
static void print_parameters(const ef_kgraph *g, const ef_schedule *s, ef_strbuf *out)
{
    size_t line = out->length;
    ef_strbuf_puts(out, "Schedule: ");
    for (uint32_t i = 0, any = 0; i < s->count; i++) {
        uint64_t value[EF_SCHEDULE_VALUES];
        if (ef_schedule_domain(g, EF_BACKEND_TRITON, i, value) < 2)
            continue;
        ef_strbuf_puts(out, any++ ? "," : "");
        if (out->length - line > 100) {
            ef_strbuf_puts(out, "\n");
            line = out->length;
        }
        ef_schedule_name(g, i, out);
        ef_strbuf_printf(out, "=%" PRIu64, s->value[i]);
    }
    ef_strbuf_puts(out, "\n");
}

static void print_top(const ef_kgraph *g, const ef_schedule *s, const char *name, ef_strbuf *out)
{
    ef_strbuf_printf(out, "\"\"\"%s as %" PRIu32 " Triton kernel%s. Runs with torch and triton alone:\n\n    %s(",
                     g->name, g->kernels.count, g->kernels.count == 1 ? "" : "s", name);
    for (uint32_t i = 0; i < g->inputs; i++)
        ef_strbuf_printf(out, "%s%s", i ? ", " : "", g->buffers.at[i].name);
    ef_strbuf_puts(out, ") -> ");
    for (uint32_t i = 0; i < g->outputs.count; i++)
        ef_strbuf_printf(out, "%s%s", i ? ", " : "", g->buffers.at[g->outputs.at[i]].name);
    ef_strbuf_puts(out, "\n\nlaunch(inputs, outputs, temps) does the same into given tensors, without allocating.\n");
    print_parameters(g, s, out);
    ef_strbuf_puts(out, "\"\"\"\n");
}

static bool has_descriptors(const ef_kgraph *g, const t_kernel *kernel)
{
    for (uint32_t i = 0; i < g->kernels.count; i++)
        if (kernel[i].descriptors.count)
            return true;
    return false;
}

static bool overlaps(const ef_kgraph *g, const ef_schedule *s)
{
    for (uint32_t i = 0; i < g->kernels.count; i++)
        if (ef_sched_value(g, s, i, EF_PARAM_OVERLAP))
            return true;
    return false;
}

static void print_imports(const ef_kgraph *g, const ef_schedule *s, const t_kernel *kernel, ef_strbuf *out)
{
    ef_strbuf_puts(out, "import torch\nimport triton\nimport triton.language as tl\n");
    if (has_descriptors(g, kernel))
        ef_strbuf_puts(out, "from triton.tools.tensor_descriptor import TensorDescriptor\n");
    if (overlaps(g, s))
        ef_strbuf_puts(out, "\nif triton.knobs.runtime.interpret:  # it runs kernels one after the other\n"
                            "    gdc_wait = gdc_launch_dependents = lambda: None\n"
                            "else:\n"
                            "    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait\n");
    ef_strbuf_puts(out, "\n");
}

static void print_lists(const ef_kgraph *g, const ef_schedule *s, ef_strbuf *out)
{
    ef_strbuf_puts(out, "INPUTS = [\n");
    for (uint32_t i = 0; i < g->inputs; i++) {
        const ef_kbuffer *b = &g->buffers.at[i];
        ef_strbuf_printf(out, "    (\"%s\", torch.%s, ", b->name, torch_dtype((ef_dtype)b->dtype));
        print_shape(g, s, b->dim, b->rank, out);
        ef_strbuf_puts(out, "),\n");
    }
    ef_strbuf_puts(out, "]\nOUTPUTS = [\n");
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ef_kbuffer *b = &g->buffers.at[g->outputs.at[i]];
        const ef_type_info *type = ef_type_at(g->ctx, g->output_type.at[i]);
        ef_strbuf_printf(out, "    (\"%s\", torch.%s, ", b->name, torch_dtype((ef_dtype)b->dtype));
        print_shape(g, s, type->dim, type->rank, out);
        ef_strbuf_puts(out, "),\n");
    }
    ef_strbuf_puts(out, "]\nBUFFERS = [\n");
    for (uint32_t i = 0; i < g->buffers.count; i++) {
        const ef_kbuffer *b = &g->buffers.at[i];
        if (b->kind == EF_BUFFER_TEMP && b->born != EF_NONE)
            ef_strbuf_printf(out, "    (torch.%s, %" PRIu64 "),\n", torch_dtype((ef_dtype)b->dtype),
                             ef_sched_buffer(g, s, i));
    }
    ef_strbuf_puts(out, "]\n");
}

/* The remainder with the sign of the divisor, and floor(a / b). */
static const char *const divisions =
    "\n\n@triton.jit\ndef _mod(a, b):\n"
    "    q, r = _divided(a, b)\n"
    "    return r\n"
    "\n\n@triton.jit\ndef _floordiv(a, b):\n"
    "    q, r = _divided(a, b)\n"
    "    return tl.where(b == 0.0, a / b, q)\n"
    "\n\n@triton.jit\ndef _divided(a, b):\n"
    "    # The rounded quotient may be off by one.\n"
    "    a, b = tl.broadcast(a, b)\n"
    "    q = tl.floor(a / b)\n"
    "    r = tl.fma(-q, b, a)\n"
    "    r = tl.where((tl.abs(b) == float(\"inf\")) & (tl.abs(a) < float(\"inf\")), a + 0.0 * q, r)\n"
    "    above = (r != 0.0) & ((r < 0.0) != (b < 0.0))\n"
    "    below = tl.abs(r) >= tl.abs(b)\n"
    "    q = tl.where(above, q - 1.0, tl.where(below, q + 1.0, q))\n"
    "    return q, tl.where(above, r + b, tl.where(below, r - b, r))\n";

/* By 0 both are 0. Triton's own round towards 0. */
static const char *const integer_divisions = "\n\n@triton.jit\ndef _mod_int(a, b):\n"
                                             "    a, b = tl.broadcast(a, b)\n"
                                             "    d = tl.where((b == 0) | (b == -1), 1, b)\n"
                                             "    r = a % d\n"
                                             "    return tl.where((r != 0) & ((r < 0) != (d < 0)), r + d, r)\n"
                                             "\n\n@triton.jit\ndef _floordiv_int(a, b):\n"
                                             "    a, b = tl.broadcast(a, b)\n"
                                             "    d = tl.where((b == 0) | (b == -1), 1, b)\n"
                                             "    r = a % d\n"
                                             "    q = a // d - tl.where((r != 0) & ((r < 0) != (d < 0)), 1, 0)\n"
                                             "    return tl.where(b == 0, 0, tl.where(b == -1, -a, q))\n";

/* A device of compute capability 9.0 keeps 1 KB of shared memory for each block, and deals it out in units of 128
 * bytes. What Triton compiled is loaded again, since it was loaded for as much shared memory as it uses; the first one
 * stays, for graphs may have captured its launches. A Triton that keeps other records of kernels launches them as they
 * are. */
static const char *const evenly =
    "\n\ndef _evenly(kernel, blocks):\n"
    "    # Blocks that begin while others run would crowd on the multiprocessors that have room first. With so much\n"
    "    # shared memory, from its second launch on, each takes no more of them than its share.\n"
    "    if getattr(kernel, \"module\", None) is None:  # interpreted, or compiled only\n"
    "        return\n"
    "    device = torch.cuda.get_device_properties(torch.cuda.current_device())\n"
    "    share = -(-blocks // device.multi_processor_count)\n"
    "    shared = (device.shared_memory_per_multiprocessor // (share + 1) // 128 - 7) * 128\n"
    "    try:\n"
    "        used, packed = kernel.metadata.shared, kernel.packed_metadata\n"
    "        more = kernel.metadata._replace(shared=shared), (*packed[:2], shared, *packed[3:])\n"
    "        if used >= shared or packed[2] != used:\n"
    "            return\n"
    "        load = kernel._init_handles\n"
    "    except (AttributeError, IndexError, TypeError, ValueError):\n"
    "        return\n"
    "    kernel.metadata, kernel.packed_metadata = more\n"
    "    kernel.module = None\n"
    "    load()\n";

static void print_helpers(unsigned helpers, ef_strbuf *out)
{
    if (helpers & T_HELP_PROD)
        ef_strbuf_puts(out, "\n\n@triton.jit\ndef _product(a, b):\n    return a * b\n");
    if (helpers & T_HELP_TANH)
        ef_strbuf_puts(out, "\n\n@triton.jit\ndef _tanh(x):\n"
                            "    # A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.\n"
                            "    z = x * x\n"
                            "    p = ((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z\n"
                            "    p = ((p + 1.33314422036e-1) * z - 3.33332819422e-1) * z\n"
                            "    return tl.where(tl.abs(x) < 0.625, p * x + x, 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))\n");
    if (helpers & T_HELP_POW)
        ef_strbuf_puts(out, "\n\n@triton.jit\ndef _pow(x, y):\n"
                            "    # A negative base has whole exponents only, and its sign follows theirs.\n"
                            "    y = y + 0.0 * x\n"
                            "    p = tl.exp2(y * tl.log2(tl.abs(x)))\n"
                            "    odd = tl.floor(y * 0.5) * 2.0 != y\n"
                            "    signed = tl.where(tl.floor(y) != y, float(\"nan\"), tl.where(odd, -p, p))\n"
                            "    return tl.where(y == 0.0, 1.0, tl.where(x < 0.0, signed, p))\n");
    if (helpers & T_HELP_RESIDENT)
        ef_strbuf_puts(
            out, "\n\ndef _resident(x, blocks, each):\n"
                 "    # Blocks of threads that go round over the blocks of a grid, so many on each multiprocessor.\n"
                 "    on_gpu = x.device.type == \"cuda\"\n"
                 "    units = torch.cuda.get_device_properties(x.device).multi_processor_count if on_gpu else 2\n"
                 "    return min(blocks, each * units)\n");
    if (helpers & T_HELP_EVENLY)
        ef_strbuf_puts(out, evenly);
    if (helpers & T_HELP_DIVIDE)
        ef_strbuf_puts(out, divisions);
    if (helpers & T_HELP_DIVIDE_INT)
        ef_strbuf_puts(out, integer_divisions);
}

/* ---- launching ---- */

/* The list and the position at which a buffer is passed to launch(). */
static void print_argument(const ef_kgraph *g, uint32_t buffer, ef_strbuf *out)
{
    static const char *const list[] = {"inputs", "temps", "outputs"};
    const ef_kbuffer *b = &g->buffers.at[buffer];
    uint32_t at = b->index;
    if (b->kind == EF_BUFFER_TEMP) {
        at = 0;
        for (uint32_t i = 0; i < buffer; i++)
            at += g->buffers.at[i].kind == EF_BUFFER_TEMP && g->buffers.at[i].born != EF_NONE;
    }
    ef_strbuf_printf(out, "%s[%" PRIu32 "]", list[b->kind], at);
}

static void print_descriptor(const ef_kgraph *g, const t_descriptor *d, ef_strbuf *out)
{
    ef_strbuf_puts(out, "TensorDescriptor(");
    print_argument(g, d->buffer, out);
    ef_strbuf_printf(out, ", [%" PRIu64 ", %" PRIu64 "], [%" PRIu64 ", 1], [%" PRIu64 ", %" PRIu64 "]), ", d->rows,
                     d->columns, d->columns, d->block_rows, d->block_columns);
}

/* How many blocks there are: all of the grid, or those that go round, on the device of any of the kernel's tensors. */
static void print_blocks(const ef_kgraph *g, const t_kernel *kernel, ef_strbuf *out)
{
    uint32_t any = 0;
    if (!kernel->persist) {
        ef_strbuf_printf(out, "%" PRIu64, kernel->blocks);
        return;
    }
    while (any + 1 < g->buffers.count && !kernel->reads[any])
        any++;
    ef_strbuf_puts(out, "_resident(");
    print_argument(g, any, out);
    ef_strbuf_printf(out, ", %" PRIu64 ", %" PRIu64 ")", kernel->blocks, kernel->persist);
}

static void print_launch(const ef_kgraph *g, const ef_schedule *s, const t_kernel *kernel, ef_strbuf *out)
{
    ef_strbuf_puts(out, "\n\ndef launch(inputs, outputs, temps):\n");
    for (uint32_t k = 0; k < g->kernels.count; k++) {
        ef_strbuf_printf(out, "    %s%s[(", kernel[k].evenly ? "_evenly(" : "", kernel[k].function);
        print_blocks(g, &kernel[k], out);
        ef_strbuf_puts(out, ",)](");
        for (uint32_t i = 0; i < g->buffers.count; i++)
            if (kernel[k].reads[i]) {
                print_argument(g, i, out);
                ef_strbuf_puts(out, ", ");
            }
        for (uint32_t i = 0; i < kernel[k].descriptors.count; i++)
            print_descriptor(g, &kernel[k].descriptors.at[i], out);
        if (ef_sched_value(g, s, k, EF_PARAM_OVERLAP))
            ef_strbuf_puts(out, "launch_pdl=True, ");
        ef_strbuf_printf(out, "enable_fp_fusion=True, num_warps=%" PRIu64 ", num_stages=%" PRIu64 ")",
                         ef_sched_value(g, s, k, EF_PARAM_WARPS), ef_sched_value(g, s, k, EF_PARAM_STAGES));
        if (kernel[k].evenly) {
            ef_strbuf_puts(out, ", ");
            print_blocks(g, &kernel[k], out);
            ef_strbuf_puts(out, ")");
        }
        ef_strbuf_puts(out, "\n");
    }
    if (g->kernels.count == 0)
        ef_strbuf_puts(out, "    pass\n");
}

static void print_entry(const ef_kgraph *g, const char *name, ef_strbuf *out)
{
    ef_strbuf_printf(out,
                     "\n\ndef %s(*inputs):\n"
                     "    inputs = [x.contiguous() for x in inputs]\n"
                     "    device = inputs[0].device\n"
                     "    outputs = [torch.empty(shape, dtype=dtype, device=device) for _, dtype, shape in OUTPUTS]\n"
                     "    temps = [torch.empty(count, dtype=dtype, device=device) for dtype, count in BUFFERS]\n"
                     "    launch(inputs, outputs, temps)\n",
                     name);
    ef_strbuf_puts(out, g->outputs.count == 1 ? "    return outputs[0]\n" : "    return tuple(outputs)\n");
}

/* ---- the whole ---- */

static const char *function_name(ef_arena *arena, const ef_kernel *k, uint32_t number)
{
    ef_strbuf text = {0};
    ef_strbuf_printf(&text, "k%" PRIu32 "_", number);
    for (const char *p = k->name; *p; p++)
        ef_strbuf_add(&text, isalnum((unsigned char)*p) ? p : "_", 1);
    const char *copy = ef_arena_strndup(arena, text.text, (unsigned)text.length);
    ef_strbuf_free(&text);
    return copy;
}

static bool print_kernels(const ef_kgraph *g, const ef_schedule *s, ef_arena *arena, t_kernel *kernel, ef_diag *diag)
{
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        kernel[i].function = function_name(arena, g->kernels.at[i], i);
        kernel[i].arena = arena;
        kernel[i].reads = ef_xcalloc(g->buffers.count + 1, sizeof *kernel[i].reads);
        if (!ef_t_kernel(g, s, i, &kernel[i], diag))
            return false;
    }
    return true;
}

bool ef_codegen_triton(const ef_kgraph *g, const ef_schedule *s, const char *name, ef_strbuf *out, ef_diag *diag)
{
    t_kernel *kernel = ef_xcalloc(g->kernels.count + 1, sizeof *kernel);
    ef_arena *arena = ef_arena_new();
    bool fine = print_kernels(g, s, arena, kernel, diag);
    unsigned helpers = 0;
    if (fine) {
        print_top(g, s, name, out);
        print_imports(g, s, kernel, out);
        print_lists(g, s, out);
        for (uint32_t i = 0; i < g->kernels.count; i++)
            helpers |= kernel[i].helpers;
        print_helpers(helpers, out);
        for (uint32_t i = 0; i < g->kernels.count; i++)
            ef_strbuf_printf(out, "\n\n%s", kernel[i].text.text);
        print_launch(g, s, kernel, out);
        print_entry(g, name, out);
    }
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        ef_strbuf_free(&kernel[i].text);
        free(kernel[i].reads);
        ef_vec_free(&kernel[i].descriptors);
    }
    free(kernel);
    ef_arena_free(arena);
    return fine;
}

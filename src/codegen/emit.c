/* Printing programs: see emit.h. */
#include "codegen/emit.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "codegen/c.h"
#include "codegen/settings.h"
#include "codegen/triton.h"
#include "support/deepstack.h"

#define MAX_NAME 1000 /* bytes */

typedef struct {
    const ef_program *program;
    const ef_emit_options *options;
    const char *name;
    ef_strbuf *out;
    ef_diag *diag;
    bool fine, bad;
} emission;

static bool print(emission *e, const ef_kgraph *graph, const ef_schedule *schedule)
{
    if (e->options->backend == EF_BACKEND_TRITON)
        return ef_codegen_triton(graph, schedule, e->name, e->out, e->diag);
    ef_codegen_c_runtime(e->out);
    uint64_t work = ef_codegen_c(graph, schedule, e->name, e->out, e->diag);
    ef_strbuf_printf(e->out, "const unsigned long long %s_work = %" PRIu64 ";\n", e->name, work);
    return work > 0;
}

/* ---- the name ---- */

/* What a function cannot be called: the languages' own words, and what generated modules call otherwise. */
static const char *const taken[EF_BACKEND_COUNT] = {
    [EF_BACKEND_C] =
        " alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern "
        "false float for goto if inline int long main nullptr register restrict return short signed sizeof static "
        "static_assert struct switch thread_local true typedef typeof typeof_unqual union unsigned void volatile while "
        "i386 linux unix ",
    [EF_BACKEND_TRITON] =
        " False None True and as assert async await break class continue def del elif else except finally for from "
        "global if import in is lambda nonlocal not or pass raise return try while with "
        "AttributeError BUFFERS INPUTS IndexError OUTPUTS TensorDescriptor TypeError ValueError float "
        "gdc_launch_dependents gdc_wait getattr launch min range tl torch triton "
        "tuple "};

/* What the headers that C code includes declare, but for kinds of names that are told apart by how they begin and end:
 * functions stand here without the f, l, _r and _l of their variants. */
static const char declared[] =
    " acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi canonicalize cbrt ceil compoundn copysign "
    "cos cosh cospi dadd ddiv dfma dmul drem dsqrt dsub erf erfc exp exp10 exp10m1 exp2 exp2m1 expm1 fabs fadd fdim "
    "fdiv ffma finite floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag fmin fminimum "
    "fminimum_mag fminimum_mag_num fminimum_num fminmag fmod fmul fpclassify frexp fromfp fromfpx fsqrt fsub gamma "
    "getpayload hypot ilogb iscanonical iseqsig isfinite isgreater isgreaterequal isinf isless islessequal "
    "islessgreater isnan isnormal issignaling issubnormal isunordered iszero j0 j1 jn ldexp lgamma llogb llrint "
    "llround log log10 log10p1 log1p log2 log2p1 logb logp1 lrint lround math_errhandling modf nan nearbyint "
    "nextafter nextdown nexttoward nextup pow pown powr remainder remquo rint rootn round roundeven rsqrt scalb "
    "scalbln scalbn setpayload setpayloadsig signbit signgam significand sin sincos sinh sinpi sqrt tan tanh tanpi "
    "tgamma totalorder totalordermag trunc ufromfp ufromfpx y0 y1 yn basename bcmp bcopy bzero explicit_bzero ffs "
    "ffsll index memccpy memchr memcmp memcpy memfrob memmem memmove mempcpy memrchr memset memset_explicit rawmemchr "
    "rindex stpcpy stpncpy strcasecmp strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn strdup "
    "strerror strfry strlcat strlcpy strlen strncasecmp strncat strncmp strncpy strndup strnlen strpbrk strrchr "
    "strsep strsignal strspn strstr strtok strverscmp strxfrm offsetof unreachable INFINITY MAXFLOAT NAN NULL ";

static bool is_among(const char *words, const char *name, size_t length)
{
    ef_strbuf word = {0};
    ef_strbuf_printf(&word, " %.*s ", (int)length, name);
    bool found = strstr(words, word.text) != NULL;
    ef_strbuf_free(&word);
    return found;
}

static bool begins(const char *name, const char *const *with)
{
    for (; *with; with++)
        if (strncmp(name, *with, strlen(*with)) == 0)
            return true;
    return false;
}

/* The length without an ending that a longer name has. */
static size_t without(const char *name, size_t length, const char *ending)
{
    size_t n = strlen(ending);
    return length > n && memcmp(name + length - n, ending, n) == 0 ? length - n : length;
}

static bool is_declared(const char *name)
{
    static const char *const functions[] = {"omp_", "ompx_", NULL};
    static const char *const macros[] = {"DEC_",        "FP_",   "HUGE_VAL", "INT",  "MATH_ERR", "M_",    "PTRDIFF_",
                                         "SIG_ATOMIC_", "SIZE_", "SNAN",     "UINT", "WCHAR_",   "WINT_", NULL};
    bool upper = !strpbrk(name, "abcdefghijklmnopqrstuvwxyz");
    size_t all = strlen(name), plain = without(name, without(name, all, "_r"), "_l");
    return begins(name, functions) || (upper && begins(name, macros)) || without(name, all, "_t") < all ||
           is_among(declared, name, plain) || is_among(declared, name, without(name, plain, "f")) ||
           is_among(declared, name, without(name, plain, "l"));
}

static bool is_taken(const char *name, ef_backend backend)
{
    static const char *const helpers[] = {"_", "ef_", "EF_", NULL};
    size_t digits = name[0] == 'k' ? strspn(name + 1, "0123456789") : 0;
    return begins(name, helpers) || (digits && name[1 + digits] == '_') || /* a kernel */
           is_among(taken[backend], name, strlen(name)) || (backend == EF_BACKEND_C && is_declared(name));
}

static bool is_word(const char *name)
{
    bool word = name[0] && !isdigit((unsigned char)name[0]) && strlen(name) <= MAX_NAME;
    for (const char *at = name; *at; at++)
        word = word && (isalnum((unsigned char)*at) || *at == '_');
    return word;
}

static bool check_name(const char *name, ef_backend backend, ef_diag *diag)
{
    if (!is_word(name))
        return ef_fail(diag, "no function can be called '%.60s': letters, digits and '_', at most %d", name, MAX_NAME);
    return !is_taken(name, backend) ||
           ef_fail(diag, "the function cannot be called '%.60s' in the generated code: give it another --name", name);
}

/* Nobody chose the program's name for a function: where it cannot be one, another does. */
static const char *default_name(const char *program, ef_backend backend)
{
    return is_word(program) && !is_taken(program, backend) ? program : "program";
}

/* ---- printing ---- */

static void emit(void *user)
{
    emission *e = user;
    ef_ctx *ctx = ef_dag_ctx(e->program->dag);
    uint32_t vars = ef_var_count(ctx);
    uint64_t *extent = ef_settings_extents(ctx);
    e->bad = !check_name(e->name, e->options->backend, e->diag) ||
             (e->options->dims && !ef_settings_dims(e->program, e->options->dims, e->diag));
    ef_kgraph *graph = e->bad ? NULL : ef_kgraph_new(e->program, e->diag);
    if (graph) {
        ef_schedule schedule =
            ef_schedule_default(graph, e->options->backend, e->options->backend == EF_BACKEND_C ? 1 : 0);
        e->bad = e->options->schedule && !ef_settings_schedule(graph, &schedule, e->options->schedule, e->diag);
        e->fine = !e->bad && print(e, graph, &schedule);
        ef_schedule_free(&schedule);
    }
    ef_kgraph_free(graph);
    ef_settings_restore(ctx, extent, vars);
}

bool ef_emit(const ef_program *program, const ef_emit_options *options, ef_strbuf *out, bool *bad, ef_diag *diag)
{
    const char *name = options->name ? options->name : default_name(program->name, options->backend);
    emission e = {program, options, name, out, diag, false, false};
    ef_with_deep_stack(emit, &e);
    *bad = e.bad;
    return e.fine;
}

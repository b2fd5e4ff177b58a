/* The text form (src/ir/text_*.c): every program of the repository prints back to its bytes and to the same DAG; what
 * is written in another way normalises; every error names its place; hostile text is refused in good time. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/expr.h"
#include "ir/twin.h"
#include "support/rng.h"
#include "support/vec.h"

#define HEAD "program p\ndim m = 6\ndim k = 4\ninput x: f16[m, k]\n"

/* ---- helpers ---- */

static ef_program *parse_in(ef_ctx *ctx, const char *text)
{
    ef_diag diag = {0};
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "t", &diag);
    if (!program)
        fail_msg("%s\n%s", diag.text, text);
    return program;
}

static char *print(const ef_program *program)
{
    ef_strbuf out = {0};
    ef_program_print(program, &out);
    return out.text;
}

/* The message of text that must be refused; never empty, always one line. */
static const char *refusal(const char *text, size_t length)
{
    static ef_diag diag;
    ef_ctx *ctx = ef_ctx_new();
    diag = (ef_diag){0};
    ef_program *program = ef_program_parse(ctx, text, length, "t", &diag);
    if (program)
        fail_msg("should be refused:\n%.300s", text);
    ef_ctx_free(ctx);
    assert_true(diag.failed);
    assert_null(strchr(diag.text, '\n'));
    return diag.text;
}

/* Parses in a new context and prints. */
static char *normal_form(const char *text)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = parse_in(ctx, text);
    char *printed = print(program);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return printed;
}

/* Builds the nodes of p again where q's are, in one context: what is equal comes out as q's own node. */
static void assert_same_dag(const ef_program *p, const ef_program *q)
{
    ef_expr *copy = ef_xcalloc(ef_dag_count(p->dag) + 1, sizeof *copy), operand[EF_MAX_FIELDS];
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++) {
        const ef_expr *old;
        unsigned n = ef_dag_children(p->dag, e, &old);
        for (unsigned i = 0; i < n; i++)
            operand[i] = copy[old[i]];
        copy[e] = ef_dag_add(q->dag, ef_dag_op(p->dag, e), ef_dag_attr(p->dag, e), operand, n, NULL);
    }
    assert_int_equal(p->outputs, q->outputs);
    assert_int_equal(p->inputs, q->inputs);
    for (uint32_t i = 0; i < p->outputs; i++) {
        assert_string_equal(p->output[i].name, q->output[i].name);
        assert_int_equal(copy[p->output[i].expr], q->output[i].expr);
    }
    free(copy);
}

/* Prints, parses and prints again: the same bytes in a new context, the same DAG in the old one. */
static char *print_twice(ef_ctx *ctx, const ef_program *program)
{
    char *first = print(program), *second = normal_form(first);
    assert_string_equal(first, second);
    ef_program *parsed = parse_in(ctx, first);
    assert_same_dag(program, parsed);
    ef_program_free(parsed);
    free(second);
    return first;
}

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail_msg("cannot open %s", path);
        abort();
    }
    char *text = ef_xcalloc(1 << 20, 1);
    *length = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

/* Calls check(path) for the files of a folder; returns how many. */
static unsigned each_file(const char *folder, const char *suffix, void (*check)(const char *path))
{
    char path[512];
    unsigned count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name), tail = strlen(suffix);
        if (entry->d_name[0] == '.' || length < tail || strcmp(entry->d_name + length - tail, suffix) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        check(path);
        count++;
    }
    closedir(dir);
    return count;
}

/* ---- programs of the repository ---- */

static void check_program(const char *path)
{
    size_t length;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    char *text = read_file(path, &length);
    ef_program *program = ef_program_read(ctx, path, &diag);
    if (!program)
        fail_msg("%s", diag.text);
    char *printed = print_twice(ctx, program);
    if (strchr(text, '\'') || !strchr(printed, '\'')) /* else dimensions were set apart (ir/twin.h) */
        assert_string_equal(printed, text);
    free(printed);
    free(text);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void test_programs_print_back(void **state)
{
    (void)state;
    assert_true(each_file("tests/programs", ".ef", check_program) >= 27);
    assert_true(each_file("tests/programs/variants", ".ef", check_program) >= 9);
    each_file("tests/derivations", ".ef", check_program);
}

/* What the fuzzer kept: parses or is refused with a message, and what parses prints the same twice. */
static void check_corpus(const char *path)
{
    size_t length;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    char *text = read_file(path, &length);
    ef_program *program = ef_program_parse(ctx, text, length, path, &diag);
    assert_true(program != NULL || diag.failed);
    if (program)
        free(print_twice(ctx, program));
    ef_program_free(program);
    ef_ctx_free(ctx);
    free(text);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(each_file("tests/fuzz/corpus", "", check_corpus) > 0);
}

/* ---- normal forms ---- */

static const struct {
    const char *what, *text, *normal;
} normals[] = {
    {"blanks, comments, CRLF",
     "#a\n\n#   b\t\r\n  program  p # c\r\n\ndim m=6#\n# gone\ninput\tx : f16 [ m ]\r\noutput y=add( x,1.50 )",
     "# a\n#   b\nprogram p\ndim m = 6\ninput x: f16[m]\noutput y = add(x, 1.5)\n"},
    {"declarations move up, unused dimensions go",
     "program p\ndim m = 6\ninput x: f16[m]\na = neg(x)\ndim u = 3\ndim k = 2\n"
     "input z: f16[k]\noutput y = exp(a)\noutput w = neg(z)",
     "program p\ndim m = 6\ndim k = 2\ninput x: f16[m]\ninput z: f16[k]\na = neg(x)\noutput y = exp(a)\noutput w = "
     "neg(z)\n"},
    {"a dimension of extent 1 is the unit dimension",
     "program p\ndim b = 1\ndim m = 6\ninput x: f16[b, b*m]\noutput y = neg(x)",
     "program p\ndim m = 6\ninput x: f16[1, m]\noutput y = neg(x)\n"},
    {"numbers", HEAD "output y = add(mul(x, 007), sub(-0, sub(1E2, sub(0.000001, sub(-inf, sub(nan, 123456789012))))))",
     HEAD "output y = add(mul(x, 7), sub(0, sub(100, sub(1e-06, sub(-inf, sub(nan, 123456789012))))))\n"},
    {"slices and products of dimensions",
     "program p\ndim m = 6\ndim k = 4\ninput x: f16[m[0:6], (m*k)[2:3], ((m))[1:3][0:2], (m*k)[2:5]*k]\noutput y = "
     "neg(x)",
     "program p\ndim m = 6\ndim k = 4\ninput x: f16[m, 1, m[1:3], (m*k)[2:5]*k]\noutput y = neg(x)\n"},
    {"the same value under two names",
     HEAD "a = neg(x)\nb = neg(x)\nc = exp(b)\nd = x\ne = exp(d)\noutput y = mul(c, b)\noutput z = a",
     HEAD "a = neg(x)\nb = a\nc = exp(a)\nd = x\ne = exp(x)\noutput y = mul(c, a)\noutput z = a\n"},
    {"literals have no name", HEAD "eps = 1e-06\ntwo = 2\noutput y = add(x, mul(eps, two))",
     HEAD "eps = 1e-06\ntwo = 2\noutput y = add(x, mul(1e-06, 2))\n"},
    {"a name is used from its line on", HEAD "a = exp(neg(x))\nb = neg(x)\noutput y = mul(neg(x), b)",
     HEAD "a = exp(neg(x))\nb = neg(x)\noutput y = mul(b, b)\n"},
    {"something large without a name gets one",
     HEAD "input t0: f16[m, k]\noutput y = mul("
          "exp(neg(exp(neg(exp(neg(exp(neg(x)))))))), exp(neg(exp(neg(exp(neg(exp(neg(x)))))))))",
     HEAD "input t0: f16[m, k]\nt1 = exp(neg(exp(neg(exp(neg(exp(neg(x))))))))\noutput y = mul(t1, t1)\n"},
    {"views are one node, sorted",
     HEAD "a = partition[-2, m.0](partition[-1, k.0](x))\nb = view[k.0, m.0](x)\n"
          "output y = combination[k.0](combination[-2, m.0](a))\noutput z = combination[m.0, k.0](b)",
     HEAD
     "a = partition[-1, k.0](partition[-2, m.0](x))\nb = a\noutput y = combination[-2, m.0](combination[-1, k.0](a))\n"
     "output z = y\n"},
    {"a broadcast literal is full", HEAD "output y = broadcast[m, k](0.5)", HEAD "output y = full[m, k; 0.5]\n"},
    {"literals take no view", HEAD "output y = mul(replicate[k.0](2), view[m.0, k.1](nan))",
     HEAD "output y = mul(2, nan)\n"},
    {"s0 of a single leaf",
     "program p\ndim m = 6\ndim n = 8\ninput x: f16[m]\nc = collection[n.0](replicate[n.0](x))\n"
     "output y = reduce[repaired(max, sum, mul(c, exp(sub(s0, t0)))), first](tuple(c, c))\n",
     "program p\ndim m = 6\ndim n = 8\ninput x: f16[m]\nc = collection[n.0](replicate[n.0](x))\n"
     "output y = reduce[repaired(max, sum, mul(c, exp(sub(s, t)))), first](tuple(c, c))\n"},
    {"plain numbers",
     "program p\ninput x: f16[16, 4096]\ninput g: f16[4096]\ninput W: f16[4096, 512]\ninput d0: f16[1, 512]\n"
     "output y = add(matmul(mul(x, g), W), d0)",
     "program p\ndim d0 = 16\ndim d1 = 4096\ndim d2 = 512\ninput x: f16[d0, d1]\ninput g: f16[d1]\ninput W: f16[d1, "
     "d2]\n"
     "input d0: f16[1, d2]\noutput y = add(matmul(mul(x, g), W), d0)\n"},
    {"plain numbers take the named dimension",
     "program p\ndim d0 = 7\ndim k = 8\ninput x: f16[3, 8]\ninput w: f16[k, d0]\n"
     "a = matmul(x, w)\noutput y = add(a, full[3, 7; 1])\noutput z = reshape[3, 1, 7](a)",
     "program p\ndim d0 = 7\ndim k = 8\ndim d1 = 3\ninput x: f16[d1, k]\ninput w: f16[k, d0]\na = matmul(x, w)\n"
     "output y = add(a, full[d1, d0; 1])\noutput z = reshape[d1, 1, d0](a)\n"},
    {"plain numbers through shapes",
     "program p\ndim h = 2\ndim d = 3\ninput x: f16[h, d]\ninput y: f16[6]\ninput z: f16[4]\n"
     "a = mul(reshape[6](x), y)\nb = mul(slice[-1, 0:4](a), z)\n"
     "c = add(concat[-2](x, transpose[1, 0](broadcast[3, 2](2))), 1)\noutput w = neg(b)",
     "program p\ndim h = 2\ndim d = 3\ndim d0 = 2\ninput x: f16[h, d]\ninput y: f16[h*d]\ninput z: f16[(h*d)[0:4]]\n"
     "a = mul(reshape[h*d](x), y)\nb = mul(slice[-1, 0:4](a), z)\n"
     "c = add(concat[-2](x, transpose[1, 0](full[d, d0; 2])), 1)\noutput w = neg(b)\n"},
};

static void test_normal_forms(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof normals / sizeof *normals; i++) {
        char *printed = normal_form(normals[i].text);
        if (strcmp(printed, normals[i].normal) != 0)
            fail_msg("%s:\n%s--- wanted\n%s", normals[i].what, printed, normals[i].normal);
        char *again = normal_form(printed);
        assert_string_equal(again, printed);
        free(printed);
        free(again);
    }
}

/* ---- errors ---- */

static const struct {
    const char *text, *message; /* the message begins with "t:" and `message` */
} errors[] = {
    /* characters and lines */
    {"", "1:1: expected 'program NAME' first, found the end of the file"},
    {"dim m = 6\n", "1:1: expected 'program NAME' first, found 'dim'"},
    {"program p\n", "2:1: the program has no output"},
    {"program p q\n", "1:11: expected the end of the line, found 'q'"},
    {"program 3\n", "1:9: expected the program's name, found '3'"},
    {HEAD "output y = neg(x) \x01\n", "5:19: expected the end of the line, found byte 0x01"},
    {HEAD "output y = \xc3\xa4\n", "5:12: expected an expression, found byte 0xc3"},
    {"# a\n# \xff\nprogram p\n", "2:3: unexpected byte 0xff in a comment"},
    {"# \xc3\nprogram p\n", "1:3: unexpected byte 0xc3 in a comment"},
    {HEAD "+\n", "5:1: expected dim, input, output or NAME = EXPRESSION, found '+'"},
    {HEAD "output y = neg(x\n)", "5:17: expected ',' or ')', found the end of the line"},
    /* declarations */
    {"program p\ndim m 6\n", "2:7: expected '=', found '6'"},
    {"program p\ndim m = 0\n", "2:9: a dimension has at least 1 element"},
    {"program p\ndim m = x\n", "2:9: expected an extent, found 'x'"},
    {"program p\ndim m = 6x\n", "2:10: expected the number to end here, found 'x'"},
    {"program p\ndim m = 1099511627777\n", "2:9: number too large: an extent is at most 1099511627776"},
    {"program p\ndim m = 99999999999999999999999\n", "2:9: number too large"},
    {"program p\ndim m = 6\ndim m = 6\n", "3:5: dimension m is declared twice"},
    {"program p\ninput x: f8[2]\n", "2:10: unknown element type: one of bool, i32"},
    {"program p\ninput x: num[]\n", "2:10: unknown element type"},
    {"program p\ninput x: f16[2\n", "2:15: expected ']', found the end of the line"},
    {"program p\ninput x: f16[2, 2, 2, 2, 2, 2, 2, 2, 2]\n", "2:38: a tensor has at most 8 dimensions"},
    {"program p\ninput x: f16[n]\n", "2:14: dimension n is not declared: add a line 'dim n = EXTENT' above"},
    {"program p\ninput x: f16[0]\n", "2:14: a dimension has at least 1 element"},
    {"program p\ndim m = 6\ninput x: f16[m*4]\n",
     "3:16: a number cannot stand here: declare 'dim NAME = 4' and use NAME"},
    {"program p\ndim m = 6\ninput x: f16[m[2:2]]\n", "3:16: the slice is empty"},
    {"program p\ndim m = 6\ninput x: f16[m[2:7]]\n",
     "3:18: number too large: the position behind the last is at most 6"},
    {"program p\ndim m = 6\ninput x: f16[|m|]\n", "3:16: expected '.' and a level, as in k.0, to make an axis"},
    {"program p\ndim m = 6\ninput x: f16[|m.0|[0:2]]\n", "3:14: a collected dimension cannot be sliced"},
    {"program p\ndim m = 6\ninput x: f16[(m + |m.0|)]\n", "3:14: a collected dimension cannot be concatenated"},
    {"program p\ndim m = 1099511627776\ninput x: f16[m, m]\noutput y = x",
     "3:7: a tensor has at most 1099511627776 elements"},
    {"program p\ndim m = 1099511627776\ninput x: f16[m*m]\n", "3:14: a dimension has at most 1099511627776 elements"},
    {"program p\ndim a = 2000000\ndim b = 2000000\noutput y = add(reshape[a, 1](iota[a]), iota[b])\n",
     "4:12: a tensor has at most 1099511627776 elements"},
    {"program p\ndim a = 2000000\ndim b = 2000000\noutput y = reshape[a, b, a, b](iota[b])\n",
     "4:12: a tensor has at most 1099511627776 elements"},
    {"program p\ndim m = 2\ninput x: f16[m*m*m*m*m*m*m*m*m]\n",
     "3:14: a dimension is a product of at most 8 variables"},
    /* names */
    {HEAD "y = neg(y)\n",
     "5:9: y is not defined: add a line that defines it above this one, or declare it as an input"},
    {HEAD "y = neg(z)\noutput z = neg(x)\n", "5:9: z is not defined yet: move the line that defines it above this one"},
    {HEAD "y = neg(z)\nz = neg(y)\n", "5:9: z is not defined yet"},
    {HEAD "y = neg(m)\n", "5:9: m is a dimension, not a value: iota[m] counts along it"},
    {HEAD "x = neg(x)\n", "5:1: x is defined already: choose another name"},
    {HEAD "input x: f16[m]\n", "5:7: x is defined already"},
    {HEAD "y = neg(x)\noutput y = neg(x)\n", "6:8: y is defined already"},
    {HEAD "inf = neg(x)\n", "5:1: inf is a reserved word"},
    {HEAD "output input = neg(x)\n", "5:8: input is a reserved word"},
    /* operators and attributes */
    {HEAD "y = negg(x)\n", "5:5: unknown operator negg: did you mean neg?"},
    {HEAD "y = partion[-1, k.0](x)\n", "5:5: unknown operator partion: did you mean partition?"},
    {HEAD "y = softmax(x)\n", "5:5: unknown operator softmax"},
    {HEAD "y = reduce_p[sum, m.0](x)\n", "5:5: unknown operator reduce_p: did you mean reduce?"},
    {HEAD "y = input(x)\n", "5:5: unknown operator input"},
    {HEAD "y = add(x)\n", "5:5: add wants 2 operands, not 1"},
    {HEAD "y = neg(x, x)\n", "5:5: neg wants 1 operand, not 2"},
    {HEAD "y = tuple()\n", "5:5: tuple wants 1 to 8 operands, not 0"},
    {HEAD "y = tuple(x, x, x, x, x, x, x, x, x)\n", "5:5: tuple wants 1 to 8 operands, not 9"},
    {HEAD "y = exp[2](x)\n", "5:9: expected '(': this operator has no attributes, found '2'"},
    {HEAD "y = reduce(x)\n", "5:11: expected '[' and this operator's attributes, found '('"},
    {HEAD "y = reduce[avg, -1](x)\n", "5:12: unknown reducer: one of sum, max, min, prod"},
    {HEAD "y = reduce[sum, 1](x)\n", "5:17: expected -1, -2"},
    {HEAD "y = reduce[sum, -0](x)\n", "5:19: dimensions are counted from the last one"},
    {HEAD "y = reduce[sum, -9](x)\n", "5:18: number too large"},
    {HEAD "y = reduce[sum, m](x)\n", "5:18: expected '.' and a level, as in k.0, to make an axis, found ']'"},
    {HEAD "y = reduce[sum, m.2](x)\n", "5:19: number too large: an axis's level is at most 1"},
    {HEAD "y = reduce[sum, (m*k).0](x)\n", "5:17: an axis cuts one variable, not a product"},
    {HEAD "y = reduce[product(sum, sum, sum), -1](x)\n", "5:28: expected ')', found ','"},
    {HEAD "y = reduce[repaired(max, sum), -1](x)\n", "5:29: expected ',', found ')'"},
    {HEAD "y = reduce[repaired(max, sum, mul(c)), -1](x)\n", "5:31: mul wants 2 operands"},
    {HEAD "y = reduce[repaired(max, sum, neg(c, c, c, c)), -1](x)\n", "5:31: neg wants 1 operand"},
    {HEAD "y = reduce[repaired(max, sum, x), -1](x)\n", "5:31: a repair term is made of c, s, t"},
    {HEAD "y = reduce[repaired(max, sum, s1), -1](x)\n", "5:31: the first reducer has 1 leaf: write s and t"},
    {HEAD "y = reduce[repaired(product(max, max), sum, s), -1](x)\n", "5:45: the first reducer has 2 leaves: write s0"},
    {HEAD "y = reduce[repaired(max, sum, matmul(c, c)), -1](x)\n",
     "5:31: a repair term applies pointwise operators only"},
    {HEAD "y = cast[int](x)\n", "5:10: unknown element type"},
    {HEAD "y = transpose[-1](x)\n", "5:15: expected a dimension's number, counted from the first one"},
    {HEAD "y = transpose[0](x)\n", "5:5: transpose lists 1 dimensions of a tensor that has 2"},
    {HEAD "y = transpose[0, 0](x)\n", "5:5: transpose wants each dimension once"},
    {HEAD "y = transpose[0, 2](x)\n", "5:5: transpose lists each of the dimensions 0 to 1 once"},
    {HEAD "y = slice[-1, 3:3](x)\n", "5:15: the slice is empty"},
    {HEAD "y = slice[-1, 0:5](x)\n", "5:5: slice"},
    {HEAD "y = slice[-1, 0:268435456](x)\n", "5:17: number too large"},
    {HEAD "y = full[m, k](x)\n", "5:14: expected ';', found ']'"},
    {HEAD "y = full[m, k; x]\n", "5:16: expected a number, found 'x'"},
    {HEAD "y = add(x, 1e999)\n", "5:12: number too large for a double: write inf when you mean infinity"},
    {HEAD "y = add(x, 1.2.3)\n", "5:15: expected the number to end here, found '.'"},
    {HEAD "y = add(x, 0x10)\n", "5:13: expected the number to end here, found 'x10'"},
    {HEAD "y = add(x, -nan)\n", "5:13: expected a number, found 'nan'"},
    /* types */
    {HEAD "y = add(x, tuple(x, x))", "5:5: a pointwise operator wants tensors, not tuples: use get"},
    {HEAD "y = add(x, iota[m])", "5:5: operands' dimensions do not broadcast: f16[m, k] and i64[m]"},
    {HEAD "dim n = 4\ny = add(x, iota[n])",
     "6:5: operands' dimensions do not broadcast: f16[m, k] and i64[n]; k and n are equally long but two dimensions"},
    {HEAD "dim n = 4\ninput w: f16[n, m]\ny = matmul(x, w)",
     "7:5: matmul's inner dimensions differ: f16[m, k] and f16[n, m]; k and n are equally long but two dimensions"},
    {HEAD "y = get[2](tuple(x, x))", "5:5: get"},
    {HEAD "y = reduce[sum, -3](x)", "5:5: reduce"},
    {HEAD "y = reshape[m, m](x)", "5:5: reshape"},
    {HEAD "y = add(x, exp(and(x, x)))", "5:16: and wants a bool operand here"},
    /* axes */
    {HEAD "y = partition[-2, k.0](x)", "5:5: this axis cuts dimension -1, not -2: write partition[-1, AXIS]"},
    {HEAD "y = partition[k.0](x)", "5:5: partition says which dimension it cuts, as in partition[-1, k.0](x)"},
    {HEAD "y = replicate[k.0](x)", "5:5: this axis cuts dimension -1: write partition[-1, AXIS]"},
    {HEAD "dim n = 4\ny = partition[-1, n.0](x)",
     "6:5: this axis cuts no dimension of the operand: write replicate[AXIS]"},
    {HEAD "y = partition[-1, k.0](tuple(x, x))", "5:5: partition and replicate want a tensor: write view[AXIS]"},
    {HEAD "y = partition[-1, k.0, m.0](x)\n", "5:24: expected ']': too many axes, found 'm'"},
    {HEAD "y = view[k.0, k.0](x)\n", "5:18: an axis is named twice"},
    {HEAD "dim b = 1\ny = view[b.0](x)\n", "6:10: a dimension of extent 1 has no axis"},
    {HEAD "y = view[k.0](view[k.0](x))", "5:5: the axis"},
    {HEAD "y = combination[-1, k.0](x)", "5:5: this axis is not partitioned in the operand"},
    {HEAD "y = combination[-2, k.0](view[k.0](x))",
     "5:5: this axis cuts dimension -1, not -2: write combination[-1, AXIS]"},
    {HEAD "y = combination[k.0](combination[k.0](view[k.0](x)))", "5:5: combination"},
    {HEAD "y = combination[-1, k.0](view[k.0](tuple(x, x)))", "5:5: the fields of a tuple may be cut differently"},
    {HEAD "y = collection[k.0](view[k.0](x))", "5:5: collection"},
    /* plain numbers */
    {"program p\ninput x: f16[6, 8]\noutput y = reshape[6, 2, 4](x)\n",
     "3:12: this reshape splits or joins dimensions that are written as numbers: declare them with 'dim NAME = "
     "EXTENT'"},
    {"program p\ninput x: f16[6, 8]\noutput y = reshape[48](x)\n", "3:12: this reshape splits or joins dimensions"},
    {"program p\ndim k = 8\ndim n = 8\ninput x: f16[k]\ninput w: f16[n]\ninput z: f16[8]\noutput y = add(add(x, z), "
     "add(w, z))\n",
     "7:27: operands' dimensions do not broadcast: f16[n] and f16[k]; n and k are equally long but two dimensions"},
    {"program p\ninput x: f16[6]\ninput z: f16[8]\noutput y = add(x, z)\n",
     "4:12: operands' dimensions do not broadcast: f16[d0] and f16[d1]"},
};

static void test_errors_name_their_place(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        ef_strbuf text = {0};
        ef_strbuf_puts(&text, errors[i].text);
        if (strncmp(text.text, HEAD, strlen(HEAD)) == 0) /* types are checked once all lines are read */
            ef_strbuf_puts(&text, "\noutput last = x\n");
        const char *message = refusal(text.text, text.length);
        ef_strbuf_free(&text);
        if (strncmp(message, "t:", 2) != 0 || strncmp(message + 2, errors[i].message, strlen(errors[i].message)) != 0)
            fail_msg("%s---\n%s\n--- wanted\nt:%s", errors[i].text, message, errors[i].message);
    }
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag missing = {0}, folder = {0};
    assert_null(ef_program_read(ctx, "tests/no-such.ef", &missing));
    assert_string_equal(missing.text, "tests/no-such.ef: cannot open: No such file or directory");
    assert_null(ef_program_read(ctx, "tests", &folder));
    assert_string_equal(folder.text, "tests: cannot read: Is a directory");
    ef_ctx_free(ctx);
}

/* ---- hostile text ---- */

/* Parses text that may be anything; what parses must print as text that parses. */
static void survive(const char *text, size_t length)
{
    char *exact = malloc(length ? length : 1); /* so that the sanitizer sees a read behind the end */
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    assert_non_null(exact);
    memcpy(exact, text, length);
    ef_program *program = ef_program_parse(ctx, exact, length, "t", &diag);
    assert_true((program != NULL) != diag.failed);
    if (program)
        free(print_twice(ctx, program));
    ef_program_free(program);
    ef_ctx_free(ctx);
    free(exact);
}

static const char *const samples[] = {"tests/fuzz/corpus/seed_tiles.ef",    "tests/fuzz/corpus/seed_shapes.ef",
                                      "tests/fuzz/corpus/seed_reducers.ef", "tests/fuzz/corpus/seed_numbers.ef",
                                      "tests/fuzz/corpus/seed_axes.ef",     "tests/programs/mha_prefill_b8.ef"};

static void test_cut_short_at_every_byte(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof samples / sizeof *samples; i++) {
        size_t length;
        char *text = read_file(samples[i], &length);
        for (size_t n = 0; n <= length; n++)
            survive(text, n);
        free(text);
    }
}

static void test_random_damage(void **state)
{
    (void)state;
    ef_rng rng = {42};
    for (unsigned round = 0; round < 3000; round++) {
        size_t length;
        char *text = read_file(samples[round % 6], &length);
        for (unsigned k = 1 + ef_rng_below(&rng, 4); k > 0; k--) {
            size_t to = ef_rng_below(&rng, (uint32_t)length), from = ef_rng_below(&rng, (uint32_t)length);
            text[to] = ef_rng_below(&rng, 3) ? text[from] : (char)ef_rng_next(&rng);
        }
        survive(text, length);
        free(text);
    }
}

/* `count` times open, then middle, then `count` times close. */
static char *nest(const char *head, const char *open, const char *middle, const char *close, unsigned count)
{
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, head);
    for (unsigned i = 0; i < count; i++)
        ef_strbuf_puts(&text, open);
    ef_strbuf_puts(&text, middle);
    for (unsigned i = 0; i < count; i++)
        ef_strbuf_puts(&text, close);
    return text.text;
}

static void refuse_nest(const char *head, const char *open, const char *middle, unsigned count, const char *message)
{
    char *text = nest(head, open, middle, "", count);
    if (!strstr(refusal(text, strlen(text)), message))
        fail_msg("%s\nwanted %s", refusal(text, strlen(text)), message);
    free(text);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    refuse_nest(HEAD "output y = ", "neg(", "x", 300, "operators are nested more than 256 deep");
    refuse_nest(HEAD "output y = ", "neg(", "x", 1000000, "operators are nested more than 256 deep");
    refuse_nest(HEAD "output y = iota[", "(", "m", 1000000, "brackets are nested more than 256 deep");
    refuse_nest(HEAD "output y = iota[", "|", "m", 1000000, "brackets are nested more than 256 deep");
    refuse_nest(HEAD "output y = reduce[", "product(", "sum", 1000000, "brackets are nested more than 256 deep");
    refuse_nest(HEAD "output y = reduce[repaired(sum, sum, ", "neg(", "c", 1000000,
                "brackets are nested more than 256");
    char *text = nest(HEAD "output y = ", "exp(", "x", ")", 255);
    survive(text, strlen(text));
    free(text);
    text = nest(HEAD "output y = ", "combination[m.0, k.0](view[m.0, k.0](", "x", "))", 120);
    survive(text, strlen(text));
    free(text);
}

/* HEAD, first line, then `count` lines "aN = FORMAT of aN-1, aN-1". */
static char *chain(const char *first, const char *format, unsigned count)
{
    ef_strbuf text = {0};
    char operand[16];
    ef_strbuf_printf(&text, HEAD "a0 = %s\n", first);
    for (unsigned i = 1; i <= count; i++) {
        snprintf(operand, sizeof operand, "a%u", i - 1);
        ef_strbuf_printf(&text, "a%u = ", i);
        for (const char *c = format; *c; c++)
            ef_strbuf_add(&text, *c == '@' ? operand : c, *c == '@' ? strlen(operand) : 1);
        ef_strbuf_puts(&text, "\n");
    }
    ef_strbuf_printf(&text, "output y = a%u\n", count);
    return text.text;
}

/* Types that double at every line are refused before they fill the memory. */
static void test_growing_types(void **state)
{
    (void)state;
    static const struct {
        const char *first, *format, *message;
    } cases[] = {
        {"x", "concat[-1](@, @)", "a dimension is derived in too many steps"},
        {"x", "tuple(@, @)", "tuple"},
        {"x", "tuple(@)", "tuple"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = chain(cases[i].first, cases[i].format, 1000);
        if (!strstr(refusal(text, strlen(text)), cases[i].message))
            fail_msg("%s\n--- wanted %s", refusal(text, strlen(text)), cases[i].message);
        free(text);
    }
    char *text = chain("x", "add(@, @)", 60000); /* 2^60000 paths, 60000 nodes */
    survive(text, strlen(text));
    free(text);
    text = chain("x", "add(mul(@, @), mul(@, @))", 30000);
    survive(text, strlen(text));
    free(text);
}

static void test_large_text(void **state)
{
    (void)state;
    static const char head[] = HEAD "output y = ";
    size_t length = 10u << 20;
    char *text = malloc(length);
    assert_non_null(text);
    for (const char *fill = " \n#(|[ax=-9,:*.\xff"; *fill; fill++) {
        memset(text, *fill, length);
        assert_string_equal(refusal(text, length), "t:1:1: the program is larger than 8 MiB");
        refusal(text, 8u << 20);
        memcpy(text, head, sizeof head - 1);
        refusal(text, 8u << 20);
    }
    ef_rng rng = {7};
    for (size_t i = 0; i < length; i++)
        text[i] = "xmk01.,:[]()=+*|-\n "[ef_rng_below(&rng, 19)];
    refusal(text, 8u << 20);
    free(text);
    text = chain("x", "neg(@)", 70000);
    assert_non_null(strstr(refusal(text, strlen(text)), "a program has at most 65536 lines"));
    free(text);
    ef_strbuf wide = {0};
    ef_strbuf_puts(&wide, HEAD);
    for (unsigned line = 0; line < 5000; line++) {
        ef_strbuf_printf(&wide, "a%u = ", line);
        for (unsigned i = 0; i < 120; i++)
            ef_strbuf_puts(&wide, "add(x,");
        ef_strbuf_puts(&wide, "x");
        for (unsigned i = 0; i < 120; i++)
            ef_strbuf_puts(&wide, ")");
        ef_strbuf_puts(&wide, "\n");
    }
    assert_non_null(strstr(refusal(wide.text, wide.length), "a program has at most 1048576 operators"));
    ef_strbuf_free(&wide);
}

/* ---- programs that nobody wrote ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program program;
    ef_named output;
    uint32_t input;
} made;

static ef_expr made_input(made *m)
{
    ef_dim dims[2] = {ef_dim_of_var(m->ctx, ef_var_named(m->ctx, "m", 1, 6, NULL)),
                      ef_dim_of_var(m->ctx, ef_var_named(m->ctx, "k", 1, 4, NULL))};
    m->input = ef_input_declare(m->ctx, "x", 1, ef_type_tensor(m->ctx, EF_F16, dims, 2), NULL);
    return ef_dag_input(m->program.dag, m->input);
}

/* A program without any names but those of x and y. */
static made make(void)
{
    made m = {.ctx = ef_ctx_new()};
    m.program.dag = ef_dag_new(m.ctx);
    m.program.name = "made";
    return m;
}

static char *made_print(made *m, ef_expr e)
{
    m->output = (ef_named){"y", e};
    m->program.input = &m->input;
    m->program.output = &m->output;
    m->program.inputs = m->program.outputs = 1;
    char *printed = print_twice(m->ctx, &m->program);
    ef_dag_free(m->program.dag);
    ef_ctx_free(m->ctx);
    return printed;
}

static void test_shared_nodes_get_names(void **state)
{
    (void)state;
    made m = make();
    ef_expr x = made_input(&m);
    ef_expr e = ef_dag_add(m.program.dag, EF_EXP, 0, &x, 1, NULL);
    ef_expr two[2] = {e, ef_dag_const(m.program.dag, 2)};
    ef_expr p = ef_dag_add(m.program.dag, EF_MUL, 0, two, 2, NULL);
    ef_expr sum = ef_dag_add(m.program.dag, EF_ADD, 0, (ef_expr[]){p, e}, 2, NULL);
    char *printed = made_print(&m, sum);
    assert_string_equal(printed, "program made\ndim m = 6\ndim k = 4\ninput x: f16[m, k]\n"
                                 "t0 = exp(x)\noutput y = add(mul(t0, 2), t0)\n");
    free(printed);
}

static void test_deep_programs_get_names(void **state)
{
    (void)state;
    made m = make();
    ef_expr e = made_input(&m);
    for (unsigned i = 0; i < 20000; i++)
        e = ef_dag_add(m.program.dag, i % 2 ? EF_EXP : EF_NEG, 0, &e, 1, NULL);
    char *printed = made_print(&m, e);
    assert_non_null(strstr(printed, "t0 = exp(neg(exp(neg("));
    free(printed);
}

/* One expression prints nested; one with 2^100 paths must stop somewhere. */
static void test_one_expression(void **state)
{
    (void)state;
    made m = make();
    ef_strbuf out = {0};
    ef_expr e = made_input(&m);
    ef_axis axis = ef_axis_of(ef_var_find(m.ctx, "k", 1), 0);
    ef_expr v = ef_dag_add(m.program.dag, EF_VIEW, ef_axes_intern(m.ctx, &axis, 1), &e, 1, NULL);
    v = ef_dag_add(m.program.dag, EF_REDUCE, ef_attr_reduce(EF_RED_SUM, 0), &v, 1, NULL);
    v = ef_dag_add(m.program.dag, EF_REDUCE_P, ef_attr_reduce(EF_RED_SUM, axis), &v, 1, NULL);
    ef_expr_print(m.program.dag, v, &out);
    assert_string_equal(out.text, "reduce[sum, k.0](reduce[sum, -1](partition[-1, k.0](x)))");
    for (unsigned i = 0; i < 100; i++)
        e = ef_dag_add(m.program.dag, EF_ADD, 0, (ef_expr[]){e, e}, 2, NULL);
    ef_strbuf_free(&out);
    ef_expr_print(m.program.dag, e, &out);
    assert_true(out.length < 100000);
    assert_non_null(strstr(out.text, "..."));
    ef_strbuf_free(&out);
    ef_dag_free(m.program.dag);
    ef_ctx_free(m.ctx);
}

/* ---- random programs ---- */

typedef struct {
    ef_ctx *ctx;
    ef_dag *dag;
    ef_rng rng;
    ef_dim dim[4]; /* the unit dimension and three variables */
    ef_reducer reducer[6];
    ef_expr pool[64];
    uint32_t count;
} maker;

static uint32_t below(maker *m, uint32_t bound)
{
    return ef_rng_below(&m->rng, bound);
}

/* An axis of a named variable, or of one that some value in the pool has. */
static ef_axis any_axis(maker *m)
{
    const ef_var *atoms;
    const ef_type_info *type = ef_type_at(m->ctx, ef_dag_type(m->dag, m->pool[below(m, m->count)]));
    ef_dim dim = m->dim[1 + below(m, 3)];
    if (type->rank && below(m, 2))
        dim = type->dim[below(m, type->rank)];
    if (ef_dim_atoms(m->ctx, dim, &atoms) == 0)
        ef_dim_atoms(m->ctx, m->dim[1], &atoms);
    return ef_axis_of(atoms[0], below(m, 3) == 0);
}

/* The operand's dimensions with one merged or a unit put in, or any dimensions. */
static ef_dims any_dims(maker *m, const ef_type_info *type)
{
    ef_dim dims[EF_MAX_RANK + 1];
    ef_var both[2 * EF_MAX_ATOMS];
    unsigned n = 0, merge = below(m, 4);
    for (unsigned i = type->rank; i-- > 0 && n < EF_MAX_RANK;)
        dims[n++] = type->dim[i];
    if (below(m, 3) == 0)
        for (unsigned i = n = 1 + below(m, 3); i-- > 0;)
            dims[i] = m->dim[below(m, 4)];
    if (n > 1 && merge < n - 1) {
        const ef_var *x, *y;
        unsigned nx = ef_dim_atoms(m->ctx, dims[merge], &x), ny = ef_dim_atoms(m->ctx, dims[merge + 1], &y);
        memcpy(both, x, nx * sizeof *x);
        memcpy(both + nx, y, ny * sizeof *y);
        if (nx + ny <= EF_MAX_ATOMS) {
            dims[merge] = ef_dim_product(m->ctx, both, nx + ny);
            memmove(dims + merge + 1, dims + merge + 2, (n - merge - 2) * sizeof *dims);
            n--;
        }
    } else if (n < EF_MAX_RANK && below(m, 2)) {
        dims[n++] = EF_UNIT;
    }
    return ef_dims_intern(m->ctx, dims, n);
}

static uint64_t any_permutation(maker *m, unsigned rank)
{
    unsigned from[EF_MAX_RANK];
    uint64_t perm = 0;
    for (unsigned i = 0; i < rank; i++) {
        unsigned at = below(m, i + 1);
        from[i] = from[at];
        from[at] = i;
    }
    for (unsigned i = 0; i < rank; i++)
        perm |= (uint64_t)from[i] << 4 * i;
    return perm;
}

static uint64_t any_attribute(maker *m, ef_attr_kind kind, const ef_type_info *type)
{
    ef_axis axes[2] = {any_axis(m), any_axis(m)};
    static const double numbers[] = {0, 2, 0.1, -INFINITY, NAN, 1e-7};
    switch (kind) {
    case EF_ATTR_NUMBER: return ef_attr_number(numbers[below(m, 6)]);
    case EF_ATTR_DIM: return m->dim[below(m, 4)];
    case EF_ATTR_DIMS: return any_dims(m, type);
    case EF_ATTR_DTYPE: return (uint64_t[]){EF_BOOL, EF_I64, EF_F16, EF_F32}[below(m, 4)];
    case EF_ATTR_INDEX: return below(m, 2);
    case EF_ATTR_PERM: return any_permutation(m, type->rank);
    case EF_ATTR_SLICE: return ef_attr_slice(below(m, 2), below(m, 2), 2 + below(m, 2));
    case EF_ATTR_FIELD: return below(m, 2);
    case EF_ATTR_REDUCE: return ef_attr_reduce(m->reducer[below(m, 6)], below(m, 3) ? below(m, 2) : EF_FIRST);
    case EF_ATTR_REDUCE_P: return ef_attr_reduce(m->reducer[below(m, 6)], axes[0]);
    case EF_ATTR_AXES: return ef_axes_intern(m->ctx, axes, 1 + below(m, 2));
    case EF_ATTR_AXIS: return axes[0];
    default: return 0;
    }
}

/* Adds any operator to any operands, when the types allow it. Views and parallel operators get more than their share.
 */
static void any_node(maker *m)
{
    ef_expr operand[3] = {0};
    ef_op op = below(m, 3) ? (ef_op)(EF_CONST + below(m, EF_OP_COUNT - EF_CONST))
                           : (ef_op)(EF_REDUCE_P + below(m, EF_OP_COUNT - EF_REDUCE_P));
    unsigned count = ef_ops[op].arity < 0 ? 2 : (unsigned)ef_ops[op].arity;
    for (unsigned i = 0; i < count; i++)
        operand[i] = m->pool[below(m, m->count)];
    const ef_type_info *type = ef_type_at(m->ctx, ef_dag_type(m->dag, operand[0]));
    uint64_t attr = any_attribute(m, ef_ops[op].attr, type);
    if (op == EF_COMBINE && ef_dag_op(m->dag, operand[0]) == EF_COMBINE)
        return;                                                      /* the text form makes one node of these */
    ef_expr e = ef_twin_add(m->dag, op, attr, operand, count, NULL); /* as the parser does */
    if (e != EF_NONE)
        m->pool[m->count++] = e;
}

static maker make_random(uint64_t seed)
{
    maker m = {.ctx = ef_ctx_new(), .rng = {seed}};
    static const char *const name[] = {"m", "k", "n"}, *const input[] = {"x", "y", "z"};
    m.dag = ef_dag_new(m.ctx);
    for (unsigned i = 0; i < 3; i++)
        m.dim[i + 1] = ef_dim_of_var(m.ctx, ef_var_named(m.ctx, name[i], 1, 6 - i, NULL));
    for (unsigned i = 0; i < 3; i++) {
        ef_type type = ef_type_tensor(m.ctx, i ? EF_F32 : EF_F16, &m.dim[i % 2 + 1], 2 - i / 2);
        m.pool[m.count++] = ef_dag_input(m.dag, ef_input_declare(m.ctx, input[i], 1, type, NULL));
    }
    ef_scalar c = ef_scalar_param(m.ctx, EF_PARAM_C, 0), s = ef_scalar_param(m.ctx, EF_PARAM_S, 0);
    ef_scalar t = ef_scalar_param(m.ctx, EF_PARAM_T, 0), operand[2] = {s, t};
    ef_scalar h = ef_scalar_apply(m.ctx, EF_MUL, (ef_scalar[]){c, ef_scalar_apply(m.ctx, EF_SUB, operand)});
    for (unsigned i = 0; i < 4; i++)
        m.reducer[i] = i;
    m.reducer[4] = ef_reducer_product(m.ctx, EF_RED_SUM, EF_RED_MAX);
    m.reducer[5] = ef_reducer_repaired(m.ctx, EF_RED_MAX, EF_RED_SUM, &h);
    return m;
}

/* Random well-typed programs, with all, some or no statements named, in any order. */
static void test_random_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        maker m = make_random(seed);
        ef_named named[24], output[2];
        char names[24][8];
        uint32_t inputs[] = {0, 1, 2};
        while (m.count < 40)
            any_node(&m);
        ef_program p = {.dag = m.dag, .name = "p", .comment = "", .inputs = 3, .input = inputs};
        p.statement = named;
        p.output = output;
        p.statements = seed % 3 ? below(&m, 24) : 0;
        for (uint32_t i = 0; i < p.statements; i++) {
            snprintf(names[i], sizeof names[i], "t%u", 2 * i);
            named[i] = (ef_named){names[i], m.pool[below(&m, m.count)]};
        }
        p.outputs = 2;
        output[0] = p.statements ? named[0] : (ef_named){"a", m.pool[m.count - 2]};
        output[1] = (ef_named){"b", m.pool[m.count - 1]};
        free(print_twice(m.ctx, &p));
        ef_dag_free(m.dag);
        ef_ctx_free(m.ctx);
    }
}

/* ---- contexts ---- */

static void test_programs_share_a_context(void **state)
{
    (void)state;
    static const char numbers[] = "program p\ninput x: f16[6, 4]\noutput y = neg(x)\n";
    ef_ctx *ctx = ef_ctx_new();
    ef_program *a = parse_in(ctx, HEAD "output y = neg(x)\n"), *b = parse_in(ctx, HEAD "output z = exp(neg(x))\n");
    assert_int_equal(a->input[0], b->input[0]);
    assert_int_equal(ef_dag_type(a->dag, a->output[0].expr), ef_dag_type(b->dag, b->output[0].expr));
    ef_diag extent = {0}, type = {0};
    assert_null(ef_program_parse(ctx, "program p\ndim m = 7\n", 20, "t", &extent));
    assert_string_equal(extent.text, "t:2:5: dimension m has extent 6 and cannot also have 7");
    assert_null(ef_program_parse(ctx, numbers, strlen(numbers), "t", &type));
    assert_string_equal(type.text, "t:2:7: input x has another type than where it was declared first");
    ef_program_free(a);
    ef_program_free(b);
    ef_ctx_free(ctx);
    ctx = ef_ctx_new();
    a = parse_in(ctx, numbers);
    b = parse_in(ctx, numbers); /* the numbers get the same names again */
    assert_same_dag(a, b);
    ef_program_free(a);
    ef_program_free(b);
    ef_ctx_free(ctx);
}

static void test_what_a_program_holds(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_program *p = parse_in(ctx, "# one\n# two\n" HEAD
                                  "a = neg(x)\noutput y = exp(a)\noutput z = transpose[1, 0](slice[-1, 0:2](a))\n");
    ef_strbuf type = {0};
    assert_string_equal(p->name, "p");
    assert_string_equal(p->comment, "one\ntwo\n");
    assert_int_equal(p->inputs, 1);
    assert_int_equal(p->statements, 3); /* outputs are statements too, in their places */
    assert_int_equal(p->outputs, 2);
    assert_string_equal(p->statement[0].name, "a");
    assert_string_equal(p->output[1].name, "z");
    assert_int_equal(p->statement[2].expr, p->output[1].expr);
    ef_type_print(ctx, ef_dag_type(p->dag, p->output[1].expr), &type);
    assert_string_equal(type.text, "f16[k[0:2], m]");
    ef_strbuf_free(&type);
    ef_program_free(p);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_print_back),
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_normal_forms),
        cmocka_unit_test(test_errors_name_their_place),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_cut_short_at_every_byte),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_growing_types),
        cmocka_unit_test(test_large_text),
        cmocka_unit_test(test_shared_nodes_get_names),
        cmocka_unit_test(test_deep_programs_get_names),
        cmocka_unit_test(test_one_expression),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_programs_share_a_context),
        cmocka_unit_test(test_what_a_program_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

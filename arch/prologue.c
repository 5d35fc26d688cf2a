/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Prologue - decodes the instructions of x86-64 up to the first branch
 *
 * Compilers allocate a frame by pushes and by subtractions from sp, before any branch except for
 * the loop that touches each page of a large frame. Other instructions are decoded only to find
 * where they end. Instructions with a VEX prefix end the search, because they are not used in
 * prologues. Other architectures are not supported: their CFI computes the CFA from sp unless the
 * frame has a variable size.
 * Invariants: (1) no code causes a read outside of it  [test-prologue: hostile]
 *             (2) the size is the distance by which the code moves sp  [test-prologue: frames]
 *             (3) code that moves sp in another way has no known size  [test-prologue: unknown]
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and
 * appendix A.
 */
#include "arch/prologue.h"

#include "arch/base.h"

#define MAX_FRAME_BYTES (1 << 24)
#define REG_SP 4
#define REX_W 8
#define REX_R 4
#define REX_B 1

/*
 * The operands after an opcode, for opcodes of one byte and those after 0x0f: '.' none, 'm' ModRM,
 * 'b' ModRM and 1 byte, 'z' ModRM and a word, '1' 1 byte, '4' a word, 'V' a word or with REX.W 8
 * bytes, 'T' ModRM and perhaps the operand of a test. 'e': the instruction branches, which ends the
 * prologue. '!': a prefix, or not supported. A word has 4 bytes, with prefix 0x66 2 bytes.
 */
static const char one_byte[] = "mmmm14!!mmmm14!!mmmm14!!mmmm14!!mmmm14!!mmmm14!!mmmm14!!mmmm14!!"
			       "!!!!!!!!!!!!!!!!................!!!m!!!!4z1b!!!!eeeeeeeeeeeeeeee"
			       "bz!bmmmmmmmmmmm!..........!!!!!!!!!!....14......11111111VVVVVVVV"
			       "bbee!!bz!e!!e!!!mmmm!!!!mmmmmmmmeeee!!!!ee!e!!!!!!!!!.TT......mm";
static const char two_byte[] = "!!!!!e!!!!!e!!!!mmmmmmmmmmmmmmmm!!!!!!!!mmmmmmmm!!!!!!!!!!!!!!!!"
			       "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmbbbbmmm.!!!!mmmm"
			       "eeeeeeeeeeeeeeeemmmmmmmmmmmmmmmm!!.mbm!!!!!mbmmmmmmmmmmmmmbmmmmm"
			       "mmbmbbbm........mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm!";

struct insn {
	uint8_t rex, opcode, modrm;
	bool is_two_byte, is_short; /* is_short: prefix 0x66 */
	char kind;
	int64_t displacement, immediate;
	bool is_on_sp; /* its memory operand is at sp + displacement */
};

struct code_reader {
	const uint8_t *at, *end;
	bool is_cut;
};

static int64_t take(struct code_reader *reader, unsigned int n)
{
	uint64_t number = 0;

	if ((size_t)(reader->end - reader->at) < n) {
		reader->is_cut = true;
		return 0;
	}
	for (unsigned int i = 0; i < n; i++)
		number |= (uint64_t)reader->at[i] << (8 * i);
	reader->at += n;
	if (n > 0 && n < 8 && number >> (8 * n - 1))
		number |= UINT64_MAX << (8 * n);
	return (int64_t)number;
}

/* Reads the ModRM byte, the SIB byte and the displacement. */
static void take_operands(struct code_reader *reader, struct insn *insn)
{
	unsigned int mod, rm, sib = 0;

	insn->modrm = (uint8_t)take(reader, 1);
	mod = insn->modrm >> 6;
	rm = insn->modrm & 7;
	if (mod == 3)
		return;
	if (rm == 4)
		sib = (uint8_t)take(reader, 1);
	/* no index, and sp as the base */
	insn->is_on_sp = rm == 4 && sib == 0x24 && !(insn->rex & REX_B);
	if (mod == 1)
		insn->displacement = take(reader, 1);
	else if (mod == 2 || rm == 5 || (rm == 4 && (sib & 7) == 5))
		insn->displacement = take(reader, 4);
}

/* Reads an instruction. Returns false if it is not supported, or the code ends. */
static bool take_insn(struct code_reader *reader, struct insn *ret_insn)
{
	struct insn insn = { .kind = '!' };
	unsigned int word;
	uint8_t byte;

	do {
		byte = (uint8_t)take(reader, 1);
		insn.is_short |= byte == 0x66;
	} while (!reader->is_cut && (byte == 0x66 || byte == 0xf0 || byte == 0xf2 || byte == 0xf3 ||
				     byte == 0x2e || byte == 0x3e || byte == 0x64 || byte == 0x65));
	if ((byte & 0xf0) == 0x40) {
		insn.rex = byte;
		byte = (uint8_t)take(reader, 1);
	}
	insn.is_two_byte = byte == 0x0f;
	if (insn.is_two_byte)
		byte = (uint8_t)take(reader, 1);
	insn.opcode = byte;
	insn.kind = insn.is_two_byte ? two_byte[byte] : one_byte[byte];
	word = insn.is_short ? 2 : 4;
	if (strchr("mbzT", insn.kind))
		take_operands(reader, &insn);
	switch (insn.kind) {
	case '1':
	case 'b':
		insn.immediate = take(reader, 1);
		break;
	case '4':
	case 'z':
		insn.immediate = take(reader, word);
		break;
	case 'V':
		insn.immediate = take(reader, insn.rex & REX_W ? 8 : word);
		break;
	case 'T':
		if ((insn.modrm & 0x38) < 0x10)
			insn.immediate = take(reader, insn.opcode == 0xf6 ? 1 : word);
		break;
	default:
		break;
	}
	/* indirect calls and jumps */
	if (!insn.is_two_byte && byte == 0xff && (insn.modrm >> 3 & 7) >= 2 &&
	    (insn.modrm >> 3 & 7) <= 5)
		insn.kind = 'e';
	*ret_insn = insn;
	return !reader->is_cut && insn.kind != '!';
}

/* Returns whether the instruction may change sp in a way that is not decoded. */
static bool writes_sp(const struct insn *insn)
{
	const uint8_t opcode = insn->opcode;
	bool reg_is_sp = (insn->modrm >> 3 & 7) == REG_SP && !(insn->rex & REX_R);
	bool rm_is_sp = insn->modrm >> 6 == 3 && (insn->modrm & 7) == REG_SP &&
			!(insn->rex & REX_B);

	if (insn->is_two_byte) /* cmov, imul and movzx; the others have vector registers */
		return reg_is_sp && ((opcode & 0xf0) == 0x40 || opcode == 0xaf ||
				     (opcode >= 0xb6 && opcode <= 0xbf));
	if (!strchr("mbzT", insn->kind) || (opcode & 0xf8) == 0x38 || opcode == 0x84 ||
	    opcode == 0x85) /* no operands, comparisons and tests */
		return false;
	if ((opcode < 0x40 && opcode & 2) || opcode == 0x63 || opcode == 0x69 || opcode == 0x6b ||
	    opcode == 0x8a || opcode == 0x8b || opcode == 0x8d)
		return reg_is_sp;
	return rm_is_sp;
}

static bool is_push(const struct insn *insn)
{
	return !insn->is_two_byte &&
	       ((insn->opcode >= 0x50 && insn->opcode <= 0x57) || insn->opcode == 0x68 ||
		insn->opcode == 0x6a || (insn->opcode == 0xff && (insn->modrm & 0x38) == 0x30));
}

/* Returns whether a push saves a register, or pushes rax, which only aligns the stack. Other pushes
 * pass arguments to the first call. */
static bool is_save(const struct insn *insn)
{
	static const uint8_t saved = 1 << 3 | 1 << 0;
	static const uint8_t saved_high = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;

	return insn->opcode <= 0x57 &&
	       (insn->rex & REX_B ? saved_high : saved) >> (insn->opcode & 7) & 1;
}

/* Applies an instruction to the size of the frame. Returns false if the size is unknown. */
static bool apply(const struct insn *insn, int64_t *bytes)
{
	const uint8_t opcode = insn->opcode;

	if (is_push(insn)) {
		*bytes += 8;
		return !insn->is_short;
	}
	if (insn->is_two_byte)
		return !writes_sp(insn);
	/* pop, pushf, popf, xchg with rsp */
	if ((opcode >= 0x58 && opcode <= 0x5f) || opcode == 0x9c || opcode == 0x9d ||
	    opcode == 0x94)
		return false;
	/* add or sub of a constant */
	if ((opcode == 0x81 || opcode == 0x83) && (insn->modrm == 0xc4 || insn->modrm == 0xec) &&
	    (insn->rex & (REX_W | REX_B)) == REX_W) {
		*bytes += insn->modrm == 0xec ? insn->immediate : -insn->immediate;
		return true;
	}
	/* A comparison does not write its operand. */
	return ((opcode & 0xfc) == 0x80 && (insn->modrm & 0x38) == 0x38) || !writes_sp(insn);
}

bool prologue_frame_bytes(enum regs_arch arch, const uint8_t *code, size_t size,
			  uint32_t *ret_bytes)
{
	struct code_reader reader = { .at = code, .end = code + MIN_OF(size, PROLOGUE_MAX_BYTES) };
	int64_t bytes = 0, loop_bytes = 0;
	struct insn insn;

	if (arch != REGS_X86_64)
		return false;
	for (;;) {
		if (!take_insn(&reader, &insn))
			return false;
		/* The loop moves sp page by page to the address in r11, which is sp minus a
		 * constant. */
		if (insn.kind == 'e' && loop_bytes > 0 && (insn.opcode & 0xfe) == 0x74) {
			bytes = loop_bytes;
			loop_bytes = 0;
			(void)take(&reader, 1);
			continue;
		}
		if (insn.kind == 'e' || (is_push(&insn) && !is_save(&insn)))
			break;
		if (!insn.is_two_byte && insn.opcode == 0x8d && insn.rex == 0x4c &&
		    (insn.modrm & 0x38) == 0x18 && insn.is_on_sp)
			loop_bytes = bytes - insn.displacement;
		if (!apply(&insn, &bytes) || bytes < 0 || bytes > MAX_FRAME_BYTES)
			return false;
	}
	*ret_bytes = (uint32_t)bytes;
	return bytes % 8 == 0;
}

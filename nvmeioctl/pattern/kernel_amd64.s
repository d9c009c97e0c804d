#include "textflag.h"

// func xorLines(dst, src *byte, n int, word uint64)
// Requires AVX2. n is at least 1.
TEXT ·xorLines(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VPBROADCASTQ word+24(FP), Y0

pair:
	CMPQ CX, $2
	JLT  last
	VPXOR (SI), Y0, Y1
	VPXOR 32(SI), Y0, Y2
	VPXOR 64(SI), Y0, Y3
	VPXOR 96(SI), Y0, Y4
	VMOVDQU Y1, (DI)
	VMOVDQU Y2, 32(DI)
	VMOVDQU Y3, 64(DI)
	VMOVDQU Y4, 96(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $2, CX
	JMP  pair

last:
	TESTQ CX, CX
	JZ    done
	VPXOR (SI), Y0, Y1
	VPXOR 32(SI), Y0, Y2
	VMOVDQU Y1, (DI)
	VMOVDQU Y2, 32(DI)

done:
	VZEROUPPER
	RET

// func sameLines(b, src *byte, n int, word uint64) bool
// Requires AVX2. n is at least 1.
TEXT ·sameLines(SB), NOSPLIT, $0-33
	MOVQ b+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VPBROADCASTQ word+24(FP), Y0
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6

line:
	VPXOR (SI), Y0, Y1
	VPXOR 32(SI), Y0, Y2
	VPXOR (DI), Y1, Y1
	VPXOR 32(DI), Y2, Y2
	VPOR  Y1, Y5, Y5
	VPOR  Y2, Y6, Y6
	ADDQ  $64, SI
	ADDQ  $64, DI
	DECQ  CX
	JNZ   line
	VPOR  Y5, Y6, Y5
	VPTEST Y5, Y5
	SETEQ ret+32(FP)
	VZEROUPPER
	RET

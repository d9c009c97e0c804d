package namespace

import (
	"math/big"
	"strings"
)

// UsageError says that what the user wrote cannot be understood.
type UsageError struct {
	What   string // what was being read: "size"
	Text   string // what was written
	Reason string
}

func (e *UsageError) Error() string { return e.What + ` "` + e.Text + `": ` + e.Reason }

// ExitCode is the process's exit code for this error.
func (e *UsageError) ExitCode() int { return 80 }

// maxDigits bounds a number as it is written: a capacity has at most twenty
// digits, so more cannot be meant.
const maxDigits = 40

// unitBytes is what a unit stands for; 0 for a unit that is not one. KB is
// taken for kB, since nothing else can be meant by it.
func unitBytes(unit string) int64 {
	switch unit {
	case "B":
		return 1
	case "kB", "KB":
		return 1e3
	case "MB":
		return 1e6
	case "GB":
		return 1e9
	case "TB":
		return 1e12
	case "PB":
		return 1e15
	case "KiB", "kiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	case "TiB":
		return 1 << 40
	case "PiB":
		return 1 << 50
	}
	return 0
}

const unitsKnown = `B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB, blocks or %`

// ParseSize reads a capacity with its unit: B, kB to PB, KiB to PiB, "blocks",
// "%", "max" or "factory". A whole number of GB from 50 GB on, written in GB or
// TB, is a marketing capacity unless exact is set. A bare number is refused.
// Errors are *UsageError.
func ParseSize(text string, exact bool) (Size, error) {
	switch trimmed := strings.TrimSpace(text); trimmed {
	case "max":
		return Size{Kind: SizeMax, Text: trimmed}, nil
	case "factory":
		return Size{Kind: SizeFactory, Text: trimmed}, nil
	}
	number, unit, err := splitNumber("size", text)
	if err != nil {
		return Size{}, err
	}
	usage := func(reason string) (Size, error) {
		return Size{}, &UsageError{What: "size", Text: text, Reason: reason}
	}
	s := Size{Text: strings.TrimSpace(text), amount: number}
	switch unit {
	case "":
		return usage("a bare number has no meaning; give a unit: " + unitsKnown)
	case "%":
		s.Kind = SizePercent
	case "block", "blocks":
		s.Kind = SizeBlocks
		if !number.IsInt() {
			return usage("a number of blocks is a whole number")
		}
	default:
		factor := unitBytes(unit)
		if factor == 0 {
			return usage(unknownUnit(unit))
		}
		s.Kind = SizeBytes
		// A part of a byte cannot be stored; sizes are rounded down throughout.
		s.amount = new(big.Rat).SetInt(floor(new(big.Rat).Mul(number, new(big.Rat).SetInt64(factor))))
	}
	if s.amount.Sign() == 0 {
		return usage("a namespace cannot have size 0")
	}
	if gb, ok := marketingGB(s, unit); ok && !exact {
		s.Kind, s.literal, s.amount = SizeMarketing, s.amount.Num(), gb
	}
	return s, nil
}

func unknownUnit(unit string) string {
	switch unit {
	case "k", "K", "M", "G", "T", "P":
		return `"` + unit + `" can mean two things: write ` + unit + "B (decimal) or " + strings.ToUpper(unit) + "iB (binary)"
	}
	return `unknown unit "` + unit + `"; known are ` + unitsKnown
}

// marketingGB says whether a size in bytes is a whole number of GB that a drive
// is sold with.
func marketingGB(s Size, unit string) (*big.Rat, bool) {
	if s.Kind != SizeBytes || unit != "GB" && unit != "TB" {
		return nil, false
	}
	gb := new(big.Rat).Quo(s.amount, big.NewRat(1e9, 1))
	if !gb.IsInt() || gb.Cmp(big.NewRat(idemaBaseGB, 1)) < 0 || gb.Cmp(big.NewRat(idemaMaxGB, 1)) > 0 {
		return nil, false
	}
	return gb, true
}

// ParseIDEMA reads a marketing capacity in whole GB, at least 50: "6.4TB",
// "480GB". Errors are *UsageError.
func ParseIDEMA(text string) (Size, error) {
	s, err := ParseSize(text, false)
	if err != nil {
		return Size{}, err
	}
	if s.Kind != SizeMarketing {
		return Size{}, &UsageError{What: "IDEMA capacity", Text: text, Reason: "it is a whole number of GB, at least 50, written in GB or TB"}
	}
	return s, nil
}

// ParseOP reads an over-provisioning in percent, with or without the sign:
// "20%", "20", "6.7". ofTotal chooses (total-user)/total in place of
// (total-user)/user. Errors are *UsageError.
func ParseOP(text string, ofTotal bool) (Size, error) {
	number, unit, err := splitNumber("over-provisioning", text)
	if err != nil {
		return Size{}, err
	}
	usage := func(reason string) (Size, error) {
		return Size{}, &UsageError{What: "over-provisioning", Text: text, Reason: reason}
	}
	if unit != "" && unit != "%" {
		return usage("it is a percentage")
	}
	limit := big.NewRat(1000, 1)
	kind, of := SizeOPUser, "of the user capacity"
	if ofTotal {
		limit, kind, of = big.NewRat(100, 1), SizeOPTotal, "of the total capacity"
	}
	if number.Cmp(limit) >= 0 {
		return usage("it has to be less than " + limit.RatString() + " % " + of)
	}
	label := "op " + strings.TrimSuffix(strings.TrimSpace(text), "%") + "% " + of
	return Size{Kind: kind, Text: label, amount: number}, nil
}

// splitNumber reads a decimal number without sign, exponent or leading zeros
// and the unit behind it, exactly.
func splitNumber(what, text string) (*big.Rat, string, error) {
	usage := func(reason string) (*big.Rat, string, error) {
		return nil, "", &UsageError{What: what, Text: text, Reason: reason}
	}
	t := strings.TrimSpace(text)
	end := 0
	for end < len(t) && (t[end] >= '0' && t[end] <= '9' || t[end] == '.') {
		end++
	}
	digits, unit := t[:end], strings.TrimLeft(t[end:], " ")
	whole, fraction, point := strings.Cut(digits, ".")
	switch {
	case digits == "" || whole == "":
		return usage("it has to begin with a number")
	case strings.Contains(fraction, "."), point && fraction == "":
		return usage("the number has a misplaced point")
	case len(whole) > 1 && whole[0] == '0':
		return usage("the number has a leading zero; it is read as decimal, never as octal or hexadecimal")
	case len(digits) > maxDigits:
		return usage("the number is too long")
	}
	number, ok := new(big.Rat).SetString(digits)
	if !ok {
		return usage("the number cannot be read")
	}
	return number, unit, nil
}

// ParseFormat reads "512", "4096", "4096+8" or "4k" as data size and metadata
// size in bytes. Errors are *UsageError.
func ParseFormat(text string) (FormatSelector, error) {
	data, meta, both := strings.Cut(strings.TrimSpace(text), "+")
	var f FormatSelector
	var ok bool
	if f.DataBytes, ok = formatBytes(data); !ok || f.DataBytes < 512 || f.DataBytes&(f.DataBytes-1) != 0 {
		return FormatSelector{}, &UsageError{What: "LBA format", Text: text, Reason: `write the data size, and the metadata size if there is one: "4096", "512+8"`}
	}
	if both {
		if f.MetadataBytes, ok = formatBytes(meta); !ok || f.MetadataBytes > 0xFFFF {
			return FormatSelector{}, &UsageError{What: "LBA format", Text: text, Reason: "the metadata size cannot be read"}
		}
	}
	return f, nil
}

// formatBytes reads a small number of bytes; "4k" is 4096.
func formatBytes(text string) (uint32, bool) {
	factor := uint32(1)
	if t, ok := strings.CutSuffix(text, "k"); ok {
		text, factor = t, 1024
	}
	if text == "" || len(text) > 7 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	n := uint32(0)
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint32(c-'0')
	}
	if n > 1<<20 {
		return 0, false
	}
	return n * factor, true
}

// String is the selector as ParseFormat reads it.
func (f FormatSelector) String() string {
	s := big.NewInt(int64(f.DataBytes)).String()
	if f.MetadataBytes != 0 {
		s += "+" + big.NewInt(int64(f.MetadataBytes)).String()
	}
	return s
}

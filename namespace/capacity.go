package namespace

import (
	"fmt"
	"math/big"
	"strings"

	"nvop/nvmeioctl"
)

// SizeKind is how a size was asked for.
type SizeKind uint8

// The kinds of size.
const (
	// SizeBytes is a literal number of bytes.
	SizeBytes SizeKind = iota + 1
	// SizeMarketing is a capacity in whole GB, meaning the IDEMA block count.
	SizeMarketing
	// SizeBlocks is a number of logical blocks.
	SizeBlocks
	// SizePercent is a share of the drive's total capacity.
	SizePercent
	// SizeOPUser is over-provisioning as (total - user) / user.
	SizeOPUser
	// SizeOPTotal is over-provisioning as (total - user) / total.
	SizeOPTotal
	// SizeMax is everything that is free.
	SizeMax
	// SizeFactory is the largest IDEMA capacity the drive can hold: drives do
	// not report what they were shipped with.
	SizeFactory
)

// Size is a capacity as it was asked for, before it meets a drive. Make one
// with [ParseSize], [ParseOP] or [ParseIDEMA].
type Size struct {
	Kind SizeKind
	// Text is what the user wrote.
	Text string
	// amount is bytes, GB, blocks or percent, exactly; nil for max and factory.
	amount *big.Rat
	// literal is the same amount in bytes for a marketing capacity.
	literal *big.Int
}

func (s Size) String() string { return s.Text }

// Bytes is the size where it is a literal number of bytes, as ParseSize makes it
// with exact set; false for every other kind and where it does not fit.
func (s Size) Bytes() (uint64, bool) {
	if s.Kind != SizeBytes || s.amount == nil {
		return 0, false
	}
	n := floor(s.amount)
	return n.Uint64(), n.IsUint64()
}

// The IDEMA LBA1-03 counts of 512-byte sectors: a base at 50 GB and so many
// more for each GB. The counts for 4096-byte sectors are exactly an eighth.
const (
	idemaBaseGB        = 50
	idemaBaseSectors   = 97_696_368
	idemaSectorsPerGB  = 1_953_504
	idemaSectorBytes   = 512
	idemaMaxGB         = 1 << 42
	oneMiB             = 1 << 20
	defaultStepDownMax = 64
)

// IDEMABytes is the capacity in bytes of a drive sold with so many GB (IDEMA
// LBA1-03); false below 50 GB, where the standard says nothing, and where the
// result would not fit.
func IDEMABytes(gb uint64) (uint64, bool) {
	if gb < idemaBaseGB || gb > idemaMaxGB {
		return 0, false
	}
	n := new(big.Int).SetUint64(gb - idemaBaseGB)
	n.Mul(n, big.NewInt(idemaSectorsPerGB))
	n.Add(n, big.NewInt(idemaBaseSectors))
	n.Mul(n, big.NewInt(idemaSectorBytes))
	return n.Uint64(), n.IsUint64()
}

// largestIDEMA is the largest IDEMA capacity that fits in total; false when
// not even 50 GB do.
func largestIDEMA(total uint64) (gb, bytes uint64, ok bool) {
	sectors := total / idemaSectorBytes
	if sectors < idemaBaseSectors {
		return 0, 0, false
	}
	gb = idemaBaseGB + (sectors-idemaBaseSectors)/idemaSectorsPerGB
	bytes, ok = IDEMABytes(gb)
	return gb, bytes, ok
}

// CapacityQuestion is what a size is resolved against. Bytes throughout.
type CapacityQuestion struct {
	// BlockBytes is the LBA data size; metadata never counts.
	BlockBytes uint32
	// GranularityBytes is what sizes are multiples of; 0 means not reported.
	GranularityBytes uint64
	// TotalBytes is the drive's capacity; 0 means not reported.
	TotalBytes uint64
	// AvailableBytes is what the namespace may take; meaningful when
	// TotalBytes is reported.
	AvailableBytes uint64
	// OtherBytes is what other namespaces hold, for over-provisioning.
	OtherBytes uint64
}

// Capacity is a size in the blocks of a drive.
type Capacity struct {
	Blocks uint64
	// Bytes is Blocks times the LBA data size.
	Bytes uint64
	// RequestedBytes is what was asked for before rounding.
	RequestedBytes uint64
	// UnitBytes is what Bytes was rounded down to a multiple of.
	UnitBytes uint64
	// Notes say how the number came about.
	Notes []string
}

// Resolve turns the size into blocks. A size that cannot be is refused with
// *nvmeioctl.RefusedError, one that needs what the drive does not report with
// *nvmeioctl.UnsupportedError.
func (s Size) Resolve(q CapacityQuestion) (Capacity, error) {
	if q.BlockBytes == 0 {
		return Capacity{}, fmt.Errorf("size %s: the LBA data size is not known", s.Text)
	}
	want, notes, err := s.wantedBytes(q)
	if err != nil {
		return Capacity{}, err
	}
	unit := lcm(uint64(q.BlockBytes), q.GranularityBytes)
	blocks := new(big.Int).Div(want, new(big.Int).SetUint64(unit))
	blocks.Mul(blocks, new(big.Int).SetUint64(unit/uint64(q.BlockBytes)))
	bytes := new(big.Int).Mul(blocks, big.NewInt(int64(q.BlockBytes)))
	if blocks.Sign() <= 0 {
		return Capacity{}, s.refuse("it is less than " + Bytes(unit) + ", the smallest size of a namespace here")
	}
	if !bytes.IsUint64() {
		return Capacity{}, s.refuse("it is more than 2^64 bytes")
	}
	c := Capacity{Blocks: blocks.Uint64(), Bytes: bytes.Uint64(), UnitBytes: unit, Notes: notes, RequestedBytes: want.Uint64()}
	if c.Bytes != c.RequestedBytes {
		c.Notes = append(c.Notes, fmt.Sprintf("rounded down from %s bytes to %s bytes, a multiple of %s bytes",
			grouped(c.RequestedBytes), grouped(c.Bytes), grouped(unit)))
	}
	return c, s.checkFits(c, q)
}

func (s Size) checkFits(c Capacity, q CapacityQuestion) error {
	if q.TotalBytes == 0 || c.Bytes <= q.AvailableBytes {
		return nil
	}
	if s.Kind == SizeBlocks && c.Blocks <= q.TotalBytes {
		return s.refuse(fmt.Sprintf("%s blocks of %d bytes are more than the drive has; %s looks like a number of bytes",
			grouped(c.Blocks), q.BlockBytes, grouped(c.Blocks)))
	}
	reason := fmt.Sprintf("%s is more than the %s that can be used", Bytes(c.Bytes), Bytes(q.AvailableBytes))
	if q.AvailableBytes < q.TotalBytes {
		reason += fmt.Sprintf(" (the drive has %s in all, other namespaces hold the rest)", Bytes(q.TotalBytes))
	}
	return s.refuse(reason)
}

func (s Size) refuse(reason string) error {
	return &nvmeioctl.RefusedError{Check: "capacity", Subject: "size " + s.Text, Reason: reason, Remedy: `"max" takes all there is`}
}

// wantedBytes is the size in bytes before rounding.
func (s Size) wantedBytes(q CapacityQuestion) (*big.Int, []string, error) {
	switch s.Kind {
	case SizeBytes:
		return s.amount.Num(), nil, nil
	case SizeBlocks:
		return new(big.Int).Mul(s.amount.Num(), big.NewInt(int64(q.BlockBytes))), nil, nil
	case SizeMarketing:
		bytes, ok := IDEMABytes(s.amount.Num().Uint64())
		if !ok {
			return nil, nil, s.refuse("no drive has such a capacity")
		}
		note := fmt.Sprintf("%s is a marketing capacity: %s bytes by IDEMA LBA1-03; literally it would be %s bytes (--exact)",
			s.Text, grouped(bytes), groupedText(s.literal.String()))
		return new(big.Int).SetUint64(bytes), []string{note}, nil
	}
	if q.TotalBytes == 0 {
		return nil, nil, &nvmeioctl.UnsupportedError{
			Feature: "size " + s.Text, Needs: "a drive that reports its total capacity", Have: "this one reports none (TNVMCAP is 0)"}
	}
	total := new(big.Int).SetUint64(q.TotalBytes)
	switch s.Kind {
	case SizePercent:
		share := new(big.Rat).Mul(new(big.Rat).SetInt(total), new(big.Rat).Quo(s.amount, big.NewRat(100, 1)))
		return floor(share), nil, nil
	case SizeOPUser, SizeOPTotal:
		return s.wantedByOP(total, q)
	case SizeMax:
		return new(big.Int).SetUint64(q.AvailableBytes), nil, nil
	case SizeFactory:
		gb, bytes, ok := largestIDEMA(q.TotalBytes)
		if !ok {
			return total, []string{"the drive is smaller than any IDEMA capacity: all of it is taken"}, nil
		}
		note := fmt.Sprintf("drives do not report what they were shipped with: %d GB is the largest IDEMA capacity this one can hold", gb)
		return new(big.Int).SetUint64(bytes), []string{note}, nil
	}
	return nil, nil, fmt.Errorf("size %q was not parsed", s.Text)
}

// wantedByOP is what over-provisioning leaves to this namespace, others kept.
func (s Size) wantedByOP(total *big.Int, q CapacityQuestion) (*big.Int, []string, error) {
	hundred := big.NewRat(100, 1)
	share := new(big.Rat)
	if s.Kind == SizeOPUser {
		share.Quo(hundred, new(big.Rat).Add(hundred, s.amount))
	} else {
		share.Quo(new(big.Rat).Sub(hundred, s.amount), hundred)
	}
	user := floor(share.Mul(share, new(big.Rat).SetInt(total)))
	if q.OtherBytes == 0 {
		return user, nil, nil
	}
	user.Sub(user, new(big.Int).SetUint64(q.OtherBytes))
	if user.Sign() <= 0 {
		return nil, nil, s.refuse(fmt.Sprintf("the other namespaces alone hold %s, more than this over-provisioning leaves", Bytes(q.OtherBytes)))
	}
	return user, []string{fmt.Sprintf("over-provisioning counts the whole drive: the other namespaces hold %s", Bytes(q.OtherBytes))}, nil
}

// stepDown says by how much and how far a size the drive refuses for lack of
// capacity may shrink: by the unit where the drive reports a granularity, else
// by 1 MiB, at most max times and at most one hundredth of the size.
func (c Capacity) stepDown(q CapacityQuestion, maxSteps int) (stepBytes, floorBytes uint64) {
	if maxSteps == 0 {
		maxSteps = defaultStepDownMax
	}
	stepBytes = c.UnitBytes
	if q.GranularityBytes == 0 {
		stepBytes = lcm(oneMiB, uint64(q.BlockBytes))
	}
	if maxSteps < 0 {
		return stepBytes, c.Bytes
	}
	steps := min(uint64(maxSteps), c.Bytes/100/stepBytes)
	return stepBytes, c.Bytes - steps*stepBytes
}

// granularity is what sizes of a format have to be multiples of; 0 for none.
// Where size and capacity granularity differ both are kept, unless that would
// make a unit larger than the drive.
func (f LBAFormat) granularity(totalBytes uint64) uint64 {
	switch {
	case f.SizeGranularityBytes == 0:
		return f.CapacityGranularityBytes
	case f.CapacityGranularityBytes == 0:
		return f.SizeGranularityBytes
	}
	both := lcm(f.SizeGranularityBytes, f.CapacityGranularityBytes)
	if totalBytes != 0 && both > totalBytes {
		return f.SizeGranularityBytes
	}
	return both
}

// OverProvision is what is left of total when user bytes are handed out;
// nil where the drive reports no total.
func OverProvision(total, user uint64) *OverProvisioning {
	if total == 0 || user == 0 || user > total {
		return nil
	}
	return &OverProvisioning{
		TotalBytes: total, UserBytes: user,
		OfUserPercent:  percent(total-user, user),
		OfTotalPercent: percent(total-user, total),
	}
}

// percent is part/whole in percent with two decimals, rounded to the nearest:
// IDEMA counts make 20 % come out as 19.9999.
func percent(part, whole uint64) string {
	n := new(big.Int).SetUint64(part)
	n.Mul(n, big.NewInt(20_000))
	n.Add(n, new(big.Int).SetUint64(whole))
	n.Div(n, new(big.Int).Lsh(new(big.Int).SetUint64(whole), 1))
	units, hundredths := new(big.Int).DivMod(n, big.NewInt(100), new(big.Int))
	return fmt.Sprintf("%s.%02d", units, hundredths.Int64())
}

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

// lcm is the least common multiple; a zero counts as one. Where it does not fit
// 64 bits a is returned: the block size is what must hold.
func lcm(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	gcd := new(big.Int).GCD(nil, nil, new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
	m := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).Div(new(big.Int).SetUint64(b), gcd))
	if !m.IsUint64() {
		return a
	}
	return m.Uint64()
}

// Bytes is a number of bytes for people: "6,401,252,745,216 bytes (6.40 TB,
// 5.82 TiB)", both rounded down.
func Bytes(n uint64) string {
	s := grouped(n) + " bytes"
	if n < 1_000_000 {
		return s
	}
	return s + " (" + scaled(n, 1000, "MB", "GB", "TB", "PB", "EB") + ", " + scaled(n, 1024, "MiB", "GiB", "TiB", "PiB", "EiB") + ")"
}

// scaled is n in the largest unit it has at least one of, two decimals. The
// first unit stands for base squared.
func scaled(n, base uint64, units ...string) string {
	unit := base * base
	i := 0
	for i < len(units)-1 && n/unit >= base {
		unit *= base
		i++
	}
	// Rounded as every other page rounds: 6.99 TiB here and 6.98 there are two sizes.
	v := new(big.Int).Mul(new(big.Int).SetUint64(n), big.NewInt(100))
	v.Add(v, new(big.Int).SetUint64(unit/2))
	return hundredthsText(v.Div(v, new(big.Int).SetUint64(unit)).Uint64()) + " " + units[i]
}

func hundredthsText(v uint64) string { return fmt.Sprintf("%d.%02d", v/100, v%100) }

// grouped is n with a comma before each three digits.
func grouped(n uint64) string { return groupedText(fmt.Sprint(n)) }

func groupedText(digits string) string {
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

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

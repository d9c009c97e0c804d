package namespace

import (
	"errors"
	"math/big"
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

// Size is a capacity as it was asked for, before it meets a drive.
type Size struct {
	Kind SizeKind
	// Text is what the user wrote.
	Text string
	// amount is bytes, GB, blocks or percent, exactly.
	amount *big.Rat
}

func (s Size) String() string { return s.Text }

// ParseSize reads a capacity with its unit: B, kB to PB, KiB to PiB, "blocks",
// "%", "max" or "factory". A whole number of GB from 50 GB on, written in GB or
// TB, is a marketing capacity unless exact is set. A bare number is refused.
// Errors are *UsageError.
func ParseSize(text string, exact bool) (Size, error) { return Size{}, errors.New("not yet") }

// ParseOP reads an over-provisioning in percent, with or without the sign:
// "20%", "20", "6.7". ofTotal chooses (total-user)/total in place of
// (total-user)/user. Errors are *UsageError.
func ParseOP(text string, ofTotal bool) (Size, error) { return Size{}, errors.New("not yet") }

// ParseIDEMA reads a marketing capacity in whole GB, at least 50: "6.4TB",
// "480GB". Errors are *UsageError.
func ParseIDEMA(text string) (Size, error) { return Size{}, errors.New("not yet") }

// UsageError says that what the user wrote cannot be understood.
type UsageError struct {
	What   string // what was being read: "size"
	Text   string // what was written
	Reason string
}

func (e *UsageError) Error() string { return e.What + " " + `"` + e.Text + `": ` + e.Reason }

// ExitCode is the process's exit code for this error.
func (e *UsageError) ExitCode() int { return 80 }

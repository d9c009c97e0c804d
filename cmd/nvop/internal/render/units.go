package render

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Count writes n with a comma every three digits.
func Count[T int | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64](n T) string {
	return group(fmt.Sprint(n))
}

// CountBig writes a counter of any width with a comma every three digits.
func CountBig(n *big.Int) string { return group(n.String()) }

func group(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Size writes bytes in decimal and binary units: "6.40 TB (5.82 TiB)".
func Size(bytes uint64) string {
	return fmt.Sprintf("%s (%s)", scaled(float64(bytes), 1000, "B", "kB", "MB", "GB", "TB", "PB", "EB"),
		scaled(float64(bytes), 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
}

// Decimal writes bytes in decimal units alone: "6.40 TB".
func Decimal(bytes uint64) string {
	return scaled(float64(bytes), 1000, "B", "kB", "MB", "GB", "TB", "PB", "EB")
}

// Rate writes a number per second: "411K", "2.83M".
func Rate(perSecond float64) string {
	switch {
	case perSecond >= 1e6:
		return strconv.FormatFloat(perSecond/1e6, 'f', 2, 64) + "M"
	case perSecond >= 1e4:
		return strconv.FormatFloat(perSecond/1e3, 'f', 0, 64) + "K"
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

func scaled(v, step float64, units ...string) string {
	i := 0
	for v >= step && i < len(units)-1 {
		v /= step
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", v, units[0])
	}
	return fmt.Sprintf("%.2f %s", v, units[i])
}

// Duration writes d rounded to what a reader cares for: "2h 03m", "41s", "9 us".
func Duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd %02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f us", float64(d)/1e3)
}

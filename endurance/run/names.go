package run

import (
	"fmt"
	"strconv"
)

// Name is what a stop rule is called on the command line and in run files.
func (k StopKind) Name() string {
	switch k {
	case StopBytes:
		return "bytes"
	case StopDriveWrites:
		return "drive-writes"
	case StopDuration:
		return "hours"
	case StopPercentageUsed:
		return "used"
	case StopSpare:
		return "spare"
	case StopTemperature:
		return "temperature"
	case StopMediaErrors:
		return "media-errors"
	case StopCriticalWarning:
		return "critical-warning"
	case StopLatency:
		return "latency"
	}
	return string(k)
}

// Term is the quantity's name in the field: what screens and verdicts show.
func (k StopKind) Term() string {
	switch k {
	case StopBytes:
		return "bytes written"
	case StopDriveWrites:
		return "drive writes"
	case StopDuration:
		return "duration"
	case StopPercentageUsed:
		return "percentage used"
	case StopSpare:
		return "available spare"
	case StopTemperature:
		return "temperature"
	case StopMediaErrors:
		return "media errors"
	case StopCriticalWarning:
		return "critical warning"
	case StopLatency:
		return "latency"
	}
	return string(k)
}

// Text is a value of a rule's quantity with its unit.
func (k StopKind) Text(v int64) string {
	switch k {
	case StopBytes:
		return bytesText(v)
	case StopDriveWrites:
		return decimals(v, 1000)
	case StopDuration:
		return decimals(v/3_600_000, 1_000_000) + " h"
	case StopPercentageUsed, StopSpare:
		return strconv.FormatInt(v, 10) + " %"
	case StopTemperature:
		return strconv.FormatInt(v, 10) + " C"
	case StopCriticalWarning:
		return fmt.Sprintf("0x%02x", v)
	case StopLatency:
		return decimals(v, 1_000_000) + " ms"
	}
	return strconv.FormatInt(v, 10)
}

// String is the rule as a person reads it: "drive writes 3", "latency 10 ms".
func (s StopRule) String() string { return s.Kind.Term() + " " + s.Kind.Text(s.Limit) }

// decimals is v / unit with as many decimals as it has, at most those of unit.
func decimals(v, unit int64) string {
	return strconv.FormatFloat(float64(v)/float64(unit), 'f', -1, 64)
}

// bytesText is an amount of data in the largest decimal unit that leaves
// something before the point.
func bytesText(v int64) string {
	const step = 1000
	unit, size := "B", int64(1)
	for _, u := range []string{"kB", "MB", "GB", "TB", "PB", "EB"} {
		if v < size*step && v > -size*step {
			break
		}
		unit, size = u, size*step
	}
	return strconv.FormatFloat(float64(v)/float64(size), 'f', 3, 64) + " " + unit
}

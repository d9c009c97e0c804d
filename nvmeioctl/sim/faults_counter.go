package sim

import (
	"math"

	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

// counterTrouble is how the counters of the vendor's logs misbehave.
type counterTrouble struct {
	Kind fault.CounterFault `json:"kind"`
	// The counters when it began, and when it was last looked at for a lag.
	HostWritten  nvmespec.Uint128 `json:"host_written"`
	MediaWritten nvmespec.Uint128 `json:"media_written"`
	MediaRead    nvmespec.Uint128 `json:"media_read"`
	Hour         uint64           `json:"hour"`
}

// wrongUnit is what a counter in the wrong unit is off by: drives count in
// 32 MiB where others count in 1 GiB.
const wrongUnit = 32

// counterFault lets the counters misbehave from now on.
func (d *Drive) counterFault(kind fault.CounterFault) error {
	m := d.media.counters()
	return d.change(func(st *state) {
		st.Faults.Counter = &counterTrouble{Kind: kind, HostWritten: m.HostWriteBytes, MediaWritten: m.MediaWriteBytes,
			MediaRead: m.MediaReadBytes, Hour: hours(int64(d.clock.Now()))}
	})
}

// vendorCounters are the counters as the vendor's logs tell them.
func (d *Drive) vendorCounters() mediaCounters {
	m := d.counters()
	t := d.st.Faults.Counter
	if t == nil {
		return m
	}
	switch t.Kind {
	case fault.CounterReset:
		m.HostWriteBytes, m.MediaWriteBytes = since(m.HostWriteBytes, t.HostWritten), since(m.MediaWriteBytes, t.MediaWritten)
		m.MediaReadBytes = since(m.MediaReadBytes, t.MediaRead)
	case fault.CounterStuck:
		m.MinErases, m.MaxErases, m.AverageErases = math.MaxUint16, math.MaxUint16, math.MaxUint16
	case fault.CounterUnit:
		m.HostWriteBytes, _ = m.HostWriteBytes.DivMod64(wrongUnit)
		m.MediaWriteBytes, _ = m.MediaWriteBytes.DivMod64(wrongUnit)
	case fault.CounterLag:
		m.HostWriteBytes, m.MediaWriteBytes, m.MediaReadBytes = t.HostWritten, t.MediaWritten, t.MediaRead
	}
	return m
}

// lag lets counters that lag come to what they are now, once an hour.
func (d *Drive) lag() {
	t, h := d.st.Faults.Counter, hours(int64(d.clock.Now()))
	if t == nil || t.Kind != fault.CounterLag || t.Hour == h {
		return
	}
	m := d.media.counters()
	d.st.Faults.Counter = &counterTrouble{Kind: t.Kind, HostWritten: m.HostWriteBytes, MediaWritten: m.MediaWriteBytes, MediaRead: m.MediaReadBytes, Hour: h}
}

// since is a-b, 0 where that would be negative.
func since(a, b nvmespec.Uint128) nvmespec.Uint128 {
	if d, ok := a.Sub(b); ok {
		return d
	}
	return nvmespec.Uint128{}
}

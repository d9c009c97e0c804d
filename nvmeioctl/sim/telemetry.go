package sim

import (
	"encoding/json"
	"errors"

	"nvop/nvmeioctl/nvmespec"
)

// telemetry is what the drive has captured for its maker. Of the data only what
// they are made from is kept: counters, at the time of capture.
type telemetry struct {
	Host       capture `json:"host"`
	Controller capture `json:"controller"`
}

// capture is one capture of telemetry data.
type capture struct {
	// Generation counts captures; 0 is none yet.
	Generation uint8  `json:"generation"`
	AtNS       int64  `json:"at_ns"`
	Reason     string `json:"reason"`
	Errors     uint64 `json:"errors"`
	Cycles     uint64 `json:"power_cycles"`
	Written    string `json:"host_written_bytes"`
	Programmed string `json:"media_written_bytes"`
	Kelvin     uint16 `json:"kelvin"`
}

func (c *capture) validate() error {
	if len(c.Reason) > 128 || !printable(c.Reason) || len(c.Written) > 40 || len(c.Programmed) > 40 || c.AtNS < 0 {
		return errors.New("telemetry that cannot be")
	}
	return nil
}

// Last blocks of the data areas, chosen: a summary, counters, and a trace.
const (
	telemetryLast1 = 4
	telemetryLast2 = 36
	telemetryLast3 = 292
)

// capture takes down what telemetry tells.
func (d *Drive) capture(c *capture, reason string) {
	m := d.media.counters()
	c.Generation++
	if c.Generation == 0 {
		c.Generation = 1 // 0 means that there is none
	}
	c.AtNS, c.Reason = int64(d.clock.Now()), reason
	c.Errors, c.Cycles, c.Kelvin = d.st.Errors.Count, d.st.PowerCycles, m.Kelvin
	c.Written, c.Programmed = m.HostWriteBytes.String(), m.MediaWriteBytes.String()
}

// captureOnError has the controller capture data of its own accord at the first
// failure of the medium or inside the controller; later ones find it taken until
// a host has read them and said so.
func (d *Drive) captureOnError(s nvmespec.Status) {
	t := &d.st.Telemetry
	inside := s.SCT() == 2 || s.Code() == nvmespec.StatusInternal
	if !inside || t.Controller.Generation != 0 && t.Controller.Reason != "" || d.st.Profile.LogAttributes&lpaTelemetry == 0 {
		return
	}
	d.capture(&t.Controller, "controller: "+s.Name())
}

// telemetryLog is a telemetry log: 07h host-initiated, 08h controller-initiated.
func telemetryLog(r *request, f nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	host := f.Log == nvmespec.LogIDTelemetryHost
	if f.Specific > 1 || f.Specific == 1 && !host {
		_, s := r.fail(nvmespec.StatusInvalidField, paramCDW10+1)
		return nil, s
	}
	if f.Specific == 1 {
		_, s := r.d.commit(func(st *state) (uint32, nvmespec.Status) {
			r.d.capture(&st.Telemetry.Host, "asked for by a host")
			st.logEvent(st.Telemetry.Host.AtNS, nvmespec.EventTelemetryCreate, r.c, r.d.telemetryHeader(nvmespec.LogIDTelemetryHost).Append(nil))
			return 0, nvmespec.StatusSuccess
		})
		if s != 0 {
			return nil, s
		}
	}
	h := r.d.telemetryHeader(f.Log)
	page := h.Append(nil)
	c := &r.state().Telemetry.Host
	if !host {
		c = &r.state().Telemetry.Controller
	}
	return append(page, telemetryData(c, h)...), nvmespec.StatusSuccess
}

// telemetryHeader is the header of a telemetry log as it is now.
func (d *Drive) telemetryHeader(id nvmespec.LogID) nvmespec.TelemetryHeader {
	t := &d.st.Telemetry
	c := &t.Host
	if id == nvmespec.LogIDTelemetryController {
		c = &t.Controller
	}
	h := nvmespec.TelemetryHeader{
		Log: id, OUI: d.st.Profile.OUI, HostGeneration: t.Host.Generation,
		ControllerDataAvailable: t.Controller.Generation != 0 && t.Controller.Reason != "", ControllerGeneration: t.Controller.Generation,
	}
	if id == nvmespec.LogIDTelemetryController {
		h.HostGeneration = 0 // there it is a scope
	}
	if c.Generation != 0 {
		h.LastBlocks = [4]uint32{telemetryLast1, telemetryLast2, telemetryLast3, 0}
		copy(h.Reason[:], c.Reason)
	}
	return h
}

// telemetryData makes the blocks of all areas: what was captured as text, then a
// filling that is not all alike, so that a piece in the wrong place is noticed.
func telemetryData(c *capture, h nvmespec.TelemetryHeader) []byte {
	b := make([]byte, h.SizeBytes(len(h.LastBlocks))-nvmespec.TelemetryHeaderSize)
	if len(b) == 0 {
		return b
	}
	text, err := json.Marshal(c)
	if err != nil {
		text = nil
	}
	n := copy(b, text)
	for i := n; i < len(b); i++ {
		b[i] = byte((uint32(i)*2654435761 + uint32(c.Generation)*40503) >> 24)
	}
	return b
}

// telemetryRead is what reading a controller-initiated log without keeping its
// event does: the controller may capture anew.
func (c *capture) read() { c.Reason = "" }

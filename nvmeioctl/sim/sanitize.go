package sim

import (
	"errors"
	"slices"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

const (
	logSanitize = uint8(nvmespec.LogIDSanitize)
	// eventCommandSet is the type of events of a command set, infoSanitized that
	// a sanitize has ended.
	eventCommandSet = 6
	infoSanitized   = 1
	sanitizeIdle    = 0xFFFF
)

// sanitize is the sanitize operation, by the drive's clock. It is saved, and goes
// on after any reset and after the power was away.
type sanitize struct {
	// State is SSTAT bits 2:0.
	State nvmespec.SanitizeState `json:"state"`
	// Command and Pattern are the dwords that started it.
	Command uint32 `json:"command"`
	Pattern uint32 `json:"pattern"`
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`
	// WrittenBytes is what hosts had written when it ended: as long as that does
	// not change, all data are erased. Never sanitized drives begin with 0.
	WrittenBytes nvmespec.Uint128 `json:"written_bytes"`
	// Fails has the one that runs end in failure, at its half.
	Fails bool `json:"fails,omitempty"`
}

func (s *sanitize) fields() nvmespec.SanitizeFields {
	return nvmespec.DecodeSanitizeFields(s.Command, s.Pattern)
}

func (s *sanitize) validate() error {
	if s.State > nvmespec.SanitizeDoneNotDeallocated || s.EndNS < s.StartNS || s.StartNS < 0 {
		return errors.New("a sanitize that cannot be")
	}
	return nil
}

// progress is SPROG.
func (s *sanitize) progress(nowNS int64) uint16 {
	switch {
	case s.State == nvmespec.SanitizeFailed:
		return sanitizeIdle / 2
	case s.State != nvmespec.SanitizeRunning || s.EndNS == s.StartNS:
		return sanitizeIdle
	}
	share := float64(nowNS-s.StartNS) / float64(s.EndNS-s.StartNS)
	return uint16(min(max(share, 0)*nvmespec.SanitizeProgressWhole, sanitizeIdle-1))
}

// passes is how many passes of an overwrite are done.
func (s *sanitize) passes(nowNS int64) uint8 {
	f := s.fields()
	if f.Action != nvmespec.SanitizeOverwriteMedia || s.EndNS == s.StartNS {
		return 0
	}
	if s.State != nvmespec.SanitizeRunning {
		return f.OverwritePasses
	}
	return uint8(float64(f.OverwritePasses) * float64(nowNS-s.StartNS) / float64(s.EndNS-s.StartNS))
}

func (p *Profile) sanitizes() bool { return p.Sanitize != 0 }

// sanitizeTime is how long a sanitize takes: a key is thrown away in seconds,
// erasing blocks takes longer, and overwriting is as slow as writing. Chosen, but
// for the last, which follows from the profile.
func (p *Profile) sanitizeTime(f nvmespec.SanitizeFields) time.Duration {
	switch f.Action {
	case nvmespec.SanitizeCryptoErase:
		return 10 * time.Second
	case nvmespec.SanitizeBlockErase:
		return time.Minute + perTB(p.CapacityBytes, 10*time.Second)
	case nvmespec.SanitizeOverwriteMedia:
		pass := float64(p.CapacityBytes) / p.Flash.SequentialWriteBytesPerSecond
		return time.Duration(pass*float64(f.OverwritePasses)) * time.Second
	}
	return 0
}

// startSanitize carries out Sanitize.
func startSanitize(r *request) (uint32, nvmespec.Status) {
	f, p, st := nvmespec.DecodeSanitizeFields(r.cmd.CDW10, r.cmd.CDW11), r.profile(), r.state()
	caps := nvmespec.SanitizeCapabilities(p.Sanitize)
	if r.cmd.CDW10>>4&15 != 0 && f.Action != nvmespec.SanitizeOverwriteMedia || f.Validate() != nil ||
		f.VerifyMedia || !caps.Has(f.Action) {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10)
	}
	switch {
	case f.Action == nvmespec.SanitizeExitFailure:
		return r.leaveFailedSanitize()
	case len(r.d.formatting) > 0:
		return 0, nvmespec.StatusFormatInProgress
	case st.Firmware.Next != 0:
		// NVMe Base 2.x: a sanitize waits for the pending activation.
		return r.fail(nvmespec.StatusNeedsReset, paramNone)
	case f.NoDeallocate && caps.NoDeallocateInhibited():
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+1)
	case st.Sanitize.State == nvmespec.SanitizeFailed && st.Sanitize.fields().AllowUnrestrictedExit != f.AllowUnrestrictedExit && !st.Sanitize.fields().AllowUnrestrictedExit:
		// After a failure in restricted mode only a restricted one is taken.
		return r.fail(nvmespec.StatusSanitizeFailed, paramCDW10)
	}
	now := int64(r.d.clock.Now())
	return r.d.commitMedia(func(st *state) (uint32, nvmespec.Status) {
		st.Sanitize = sanitize{State: nvmespec.SanitizeRunning, Command: r.cmd.CDW10, Pattern: r.cmd.CDW11,
			StartNS: now, EndNS: now + int64(p.sanitizeTime(f)), Fails: st.cannotErase(f)}
		st.SelfTest.finish(uint8(nvmespec.SelfTestAbortedSanitize), now)
		for i := range st.Namespaces {
			ns := &st.Namespaces[i]
			r.d.media.namespaceFormatted(ns.NSID, ns.sizeBytes(&st.Profile), f.Action != nvmespec.SanitizeCryptoErase)
			st.forgetUncorrectable(ns.NSID)
		}
		return 0, nvmespec.StatusSuccess
	})
}

// cannotErase says that the flash will not take a sanitize: it is read-only, or
// has blocks that cannot be written. A key can be thrown away all the same.
func (st *state) cannotErase(f nvmespec.SanitizeFields) bool {
	if f.Action == nvmespec.SanitizeCryptoErase {
		return false
	}
	return st.Faults.ReadOnly || slices.ContainsFunc(st.Faults.Bad, func(b badRange) bool { return b.Write })
}

// leaveFailedSanitize gives a drive back whose sanitize failed, if that one
// allowed it.
func (r *request) leaveFailedSanitize() (uint32, nvmespec.Status) {
	s := &r.state().Sanitize
	switch {
	case s.State != nvmespec.SanitizeFailed:
		return 0, nvmespec.StatusSuccess // there is nothing to leave
	case !s.fields().AllowUnrestrictedExit:
		return r.fail(nvmespec.StatusSanitizeFailed, paramCDW10)
	}
	return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		st.Sanitize.State = nvmespec.SanitizeNever
		return 0, nvmespec.StatusSuccess
	})
}

// settleSanitize ends a sanitize whose time has come; it says whether it did.
func (d *Drive) settleSanitize(now int64) bool {
	s := &d.st.Sanitize
	if s.State != nvmespec.SanitizeRunning {
		return false
	}
	end := s.EndNS
	if s.Fails {
		end = s.StartNS + (s.EndNS-s.StartNS)/2
	}
	if now < end {
		return false
	}
	s.State = nvmespec.SanitizeDone
	if s.Fails {
		s.State, s.Fails = nvmespec.SanitizeFailed, false
	}
	s.WrittenBytes = d.media.counters().HostWriteBytes
	sstat := uint16(s.State) | uint16(s.passes(now))<<3
	d.st.logEvent(end, nvmespec.EventSanitizeComplete, 0, nvmespec.SanitizeDoneEvent{Progress: s.progress(now), Status: sstat}.Append(nil))
	for i := range d.st.Controllers {
		d.st.Controllers[i].post(event{Type: eventCommandSet, Info: infoSanitized, LogPage: logSanitize})
	}
	return true
}

// sanitizeStatus refuses what a drive does not do while it is being sanitized, or
// after that failed (NVMe Base 2.x, "Sanitize Operations", commands allowed).
func (d *Drive) sanitizeStatus() nvmespec.Status {
	switch d.st.Sanitize.State {
	case nvmespec.SanitizeRunning:
		return nvmespec.StatusSanitizeInProgress
	case nvmespec.SanitizeFailed:
		return nvmespec.StatusSanitizeFailed | nvmespec.StatusDNR
	}
	return nvmespec.StatusSuccess
}

// duringSanitize is sanitizeStatus for an admin command, 0 for those allowed.
func (r *request) duringSanitize() nvmespec.Status {
	s := r.d.sanitizeStatus()
	if s == 0 {
		return s
	}
	switch r.cmd.Opcode {
	case nvmespec.AdminDeleteSQ, nvmespec.AdminCreateSQ, nvmespec.AdminDeleteCQ, nvmespec.AdminCreateCQ, nvmespec.AdminAbort,
		nvmespec.AdminIdentify, nvmespec.AdminGetFeatures, nvmespec.AdminSetFeatures, nvmespec.AdminAsyncEventRequest, nvmespec.AdminKeepAlive:
		return nvmespec.StatusSuccess
	case nvmespec.AdminSanitize:
		if r.d.st.Sanitize.State == nvmespec.SanitizeFailed {
			return nvmespec.StatusSuccess
		}
	case nvmespec.AdminGetLogPage:
		switch nvmespec.LogID(r.cmd.CDW10) {
		case nvmespec.LogIDSupported, nvmespec.LogIDError, nvmespec.LogIDSMART, nvmespec.LogIDChangedNamespaces,
			nvmespec.LogIDEffects, nvmespec.LogIDSanitize:
			return nvmespec.StatusSuccess
		}
	}
	return s
}

// sanitizeLog is the sanitize status log.
func sanitizeLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	s, p, now := &r.state().Sanitize, r.profile(), int64(r.d.clock.Now())
	caps := nvmespec.SanitizeCapabilities(p.Sanitize)
	log := nvmespec.SanitizeLog{
		Progress: s.progress(now), State: s.State, CompletedPasses: s.passes(now), Command: s.Command,
		GlobalDataErased: s.State != nvmespec.SanitizeRunning && s.State != nvmespec.SanitizeFailed &&
			s.WrittenBytes == r.d.media.counters().HostWriteBytes,
	}
	for _, a := range []struct {
		f  nvmespec.SanitizeFields
		to []*nvmespec.Opt[uint32]
	}{
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 16}, []*nvmespec.Opt[uint32]{&log.OverwriteSeconds}},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeBlockErase}, []*nvmespec.Opt[uint32]{&log.BlockEraseSeconds}},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeCryptoErase}, []*nvmespec.Opt[uint32]{&log.CryptoEraseSeconds}},
	} {
		if caps.Has(a.f.Action) {
			*a.to[0] = nvmespec.Some(uint32(p.sanitizeTime(a.f) / time.Second))
		}
	}
	return log.Append(nil), nvmespec.StatusSuccess
}

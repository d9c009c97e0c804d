package nvmespec

import "fmt"

// Lengths of the logs of what runs in the background.
const (
	SelfTestLogSize = 564
	SanitizeLogSize = 512
	// SelfTestResultsMax is how many results the self-test log holds.
	SelfTestResultsMax = 20
)

// SelfTestCode is what a device self-test does: the Self-test Code (STC) of
// command dword 10, and the code in the log.
type SelfTestCode uint8

// The values of SelfTestCode.
const (
	SelfTestNone     SelfTestCode = 0x0 // in the log: none runs
	SelfTestShort    SelfTestCode = 0x1
	SelfTestExtended SelfTestCode = 0x2
	SelfTestRefresh  SelfTestCode = 0x3 // host-initiated refresh
	SelfTestVendor   SelfTestCode = 0xE
	SelfTestAbort    SelfTestCode = 0xF // in a command only
)

// String names the code: "short".
func (c SelfTestCode) String() string {
	switch c {
	case SelfTestNone:
		return "none"
	case SelfTestShort:
		return "short"
	case SelfTestExtended:
		return "extended"
	case SelfTestRefresh:
		return "refresh"
	case SelfTestVendor:
		return "vendor"
	case SelfTestAbort:
		return "abort"
	}
	return fmt.Sprintf("code 0x%x", uint8(c))
}

// MarshalText gives what String gives.
func (c SelfTestCode) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (c *SelfTestCode) UnmarshalText(b []byte) error {
	v, err := unname(string(b), 16, "code 0x%x", func(i int) string { return SelfTestCode(i).String() })
	*c = SelfTestCode(v)
	return err
}

// unname finds the value below n that name gives as s.
func unname(s string, n int, _ string, name func(int) string) (int, error) {
	for i := range n {
		if name(i) == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown name %q", s)
}

// SelfTestOutcome is how a self-test ended: bits 3:0 of the Device Self-test
// Status (DSTS).
type SelfTestOutcome uint8

// The values of SelfTestOutcome.
const (
	SelfTestPassed           SelfTestOutcome = 0x0
	SelfTestAborted          SelfTestOutcome = 0x1 // by a self-test command
	SelfTestAbortedReset     SelfTestOutcome = 0x2
	SelfTestAbortedNamespace SelfTestOutcome = 0x3 // a namespace was removed
	SelfTestAbortedFormat    SelfTestOutcome = 0x4
	SelfTestFatal            SelfTestOutcome = 0x5 // a fatal error; it did not complete
	SelfTestFailedUnknown    SelfTestOutcome = 0x6 // a segment failed, which is not known
	SelfTestFailedSegment    SelfTestOutcome = 0x7 // SegmentNumber says the first that failed
	SelfTestAbortedUnknown   SelfTestOutcome = 0x8
	SelfTestAbortedSanitize  SelfTestOutcome = 0x9
	selfTestUnused           SelfTestOutcome = 0xF
)

// String is the outcome in words.
func (o SelfTestOutcome) String() string {
	switch o {
	case SelfTestPassed:
		return "passed"
	case SelfTestAborted:
		return "aborted by the host"
	case SelfTestAbortedReset:
		return "aborted by a reset"
	case SelfTestAbortedNamespace:
		return "aborted by the removal of a namespace"
	case SelfTestAbortedFormat:
		return "aborted by a format"
	case SelfTestFatal:
		return "fatal or unknown error"
	case SelfTestFailedUnknown:
		return "failed in an unknown segment"
	case SelfTestFailedSegment:
		return "failed"
	case SelfTestAbortedUnknown:
		return "aborted for an unknown reason"
	case SelfTestAbortedSanitize:
		return "aborted by a sanitize"
	}
	return fmt.Sprintf("outcome 0x%x", uint8(o))
}

// Failed says that the test found a fault of the drive; an aborted one did not.
func (o SelfTestOutcome) Failed() bool {
	return o == SelfTestFatal || o == SelfTestFailedUnknown || o == SelfTestFailedSegment
}

// MarshalText gives what String gives.
func (o SelfTestOutcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (o *SelfTestOutcome) UnmarshalText(b []byte) error {
	v, err := unname(string(b), 16, "outcome 0x%x", func(i int) string { return SelfTestOutcome(i).String() })
	*o = SelfTestOutcome(v)
	return err
}

// Offsets of the device self-test log (06h). NVMe Base Specification 2.x, "Device
// Self-test"; one result is 28 bytes.
const (
	offSTCurrent    = 0
	offSTCompletion = 1
	offSTResult     = 4
	selfTestResult  = 28
	offSTRDSTS      = 0
	offSTRSEG       = 1
	offSTRVDI       = 2
	offSTRPOH       = 4
	offSTRNSID      = 12
	offSTRFLBA      = 16
	offSTRSCT       = 24
	offSTRSC        = 25
	offSTRVS        = 26
)

// SelfTestResult is one result of the self-test log.
type SelfTestResult struct {
	Code    SelfTestCode    `json:"code"`
	Outcome SelfTestOutcome `json:"outcome"`
	// SegmentNumber is the first segment that failed; it means something only
	// with SelfTestFailedSegment.
	SegmentNumber uint8 `json:"segment_number"`
	// PowerOnHours is when the test ended.
	PowerOnHours uint64 `json:"power_on_hours"`
	// NSID, FailingLBA and Status are reported where the drive says they are
	// valid (VDI).
	NSID           Opt[uint32] `json:"nsid"`
	FailingLBA     Opt[uint64] `json:"failing_lba"`
	StatusType     Opt[uint8]  `json:"status_code_type"`
	StatusCode     Opt[uint8]  `json:"status_code"`
	VendorSpecific uint16      `json:"vendor_specific"`
}

// SelfTestLog is the device self-test log (06h).
type SelfTestLog struct {
	// Current is the test that runs; SelfTestNone means none does.
	Current SelfTestCode `json:"current"`
	// CompletedPercent is how much of it is done, 0..100; not reported while none
	// runs, whatever the byte says.
	CompletedPercent Opt[uint8] `json:"completed_percent"`
	// Results are the last tests, newest first, at most 20.
	Results []SelfTestResult `json:"results"`
}

// Running says that a test is in progress.
func (l SelfTestLog) Running() bool { return l.Current != SelfTestNone }

func decodeSelfTestResult(p page) SelfTestResult {
	dsts, vdi := p.u8(offSTRDSTS), p.u8(offSTRVDI)
	r := SelfTestResult{
		Code: SelfTestCode(dsts >> 4), Outcome: SelfTestOutcome(dsts & 15), SegmentNumber: p.u8(offSTRSEG),
		PowerOnHours: p.u64(offSTRPOH), VendorSpecific: p.u16(offSTRVS),
	}
	if vdi&1 != 0 {
		r.NSID = Some(p.u32(offSTRNSID))
	}
	if vdi&2 != 0 {
		r.FailingLBA = Some(p.u64(offSTRFLBA))
	}
	if vdi&4 != 0 {
		r.StatusType = Some(p.u8(offSTRSCT))
	}
	if vdi&8 != 0 {
		r.StatusCode = Some(p.u8(offSTRSC))
	}
	return r
}

func (r SelfTestResult) put(p page) {
	p.put8(offSTRDSTS, uint8(r.Outcome&15)|uint8(r.Code)<<4)
	p.put8(offSTRSEG, r.SegmentNumber)
	p.put8(offSTRVDI, bit8(r.NSID.OK, 0)|bit8(r.FailingLBA.OK, 1)|bit8(r.StatusType.OK, 2)|bit8(r.StatusCode.OK, 3))
	p.put64(offSTRPOH, r.PowerOnHours)
	p.put32(offSTRNSID, r.NSID.Or(0))
	p.put64(offSTRFLBA, r.FailingLBA.Or(0))
	p.put8(offSTRSCT, r.StatusType.Or(0))
	p.put8(offSTRSC, r.StatusCode.Or(0))
	p.put16(offSTRVS, r.VendorSpecific)
}

// DecodeSelfTestLog reads the log.
func DecodeSelfTestLog(b []byte) (SelfTestLog, error) {
	p, err := view(b, SelfTestLogSize, "self-test log")
	if err != nil {
		return SelfTestLog{}, err
	}
	l := SelfTestLog{Current: SelfTestCode(p.u8(offSTCurrent) & 15), Results: []SelfTestResult{}}
	if l.Running() {
		l.CompletedPercent = Some(min(p.u8(offSTCompletion)&0x7F, 100))
	}
	for i := range SelfTestResultsMax {
		e := page(p.bytes(offSTResult+selfTestResult*i, selfTestResult))
		// Drives have been seen to leave unused entries all zero, which would
		// read as a test without a code that passed at hour 0.
		if SelfTestOutcome(e.u8(offSTRDSTS)&15) == selfTestUnused || e.u8(offSTRDSTS)>>4 == 0 {
			continue
		}
		l.Results = append(l.Results, decodeSelfTestResult(e))
	}
	return l, nil
}

// Append appends the 564 bytes of the log; entries without a result are marked
// as unused.
func (l SelfTestLog) Append(b []byte) []byte {
	b, p := grow(b, SelfTestLogSize)
	p.put8(offSTCurrent, uint8(l.Current&15))
	p.put8(offSTCompletion, l.CompletedPercent.Or(0)&0x7F)
	for i := range SelfTestResultsMax {
		e := page(p.bytes(offSTResult+selfTestResult*i, selfTestResult))
		if i < len(l.Results) {
			l.Results[i].put(e)
		} else {
			e.put8(offSTRDSTS, uint8(selfTestUnused))
		}
	}
	return b
}

// SelfTestFields is command dword 10 of Device Self-test.
type SelfTestFields struct {
	Code SelfTestCode `json:"code"`
}

// Dword is CDW10.
func (f SelfTestFields) Dword() uint32 { return uint32(f.Code & 15) }

// DecodeSelfTestFields reads CDW10.
func DecodeSelfTestFields(cdw10 uint32) SelfTestFields {
	return SelfTestFields{Code: SelfTestCode(cdw10 & 15)}
}

// SanitizeAction is the Sanitize Action (SANACT).
type SanitizeAction uint8

// The values of SanitizeAction.
const (
	SanitizeExitFailure      SanitizeAction = 1
	SanitizeBlockErase       SanitizeAction = 2
	SanitizeOverwriteMedia   SanitizeAction = 3
	SanitizeCryptoErase      SanitizeAction = 4
	SanitizeExitVerification SanitizeAction = 5
)

// String names the action: "block erase".
func (a SanitizeAction) String() string {
	switch a {
	case SanitizeExitFailure:
		return "exit failure mode"
	case SanitizeBlockErase:
		return "block erase"
	case SanitizeOverwriteMedia:
		return "overwrite"
	case SanitizeCryptoErase:
		return "crypto erase"
	case SanitizeExitVerification:
		return "exit media verification"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// MarshalText gives what String gives.
func (a SanitizeAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *SanitizeAction) UnmarshalText(b []byte) error {
	v, err := unname(string(b), 8, "", func(i int) string { return SanitizeAction(i).String() })
	*a = SanitizeAction(v)
	return err
}

// SanitizeFields are command dwords 10 and 11 of Sanitize.
type SanitizeFields struct {
	Action SanitizeAction `json:"action"`
	// AllowUnrestrictedExit (AUSE) lets the drive leave a failed sanitize by a
	// new one or by SanitizeExitFailure; without it only another sanitize helps.
	AllowUnrestrictedExit bool `json:"allow_unrestricted_exit"`
	// OverwritePasses (OWPASS) is 1..16 passes; 0 on the wire means 16.
	OverwritePasses uint8 `json:"overwrite_passes"`
	// InvertPattern (OIPBP) inverts the pattern between passes.
	InvertPattern bool `json:"invert_pattern"`
	// NoDeallocate (NDAS) asks not to deallocate the media afterwards.
	NoDeallocate bool `json:"no_deallocate"`
	// VerifyMedia (EMVS) enters the media verification state afterwards.
	VerifyMedia bool `json:"verify_media"`
	// OverwritePattern is CDW11.
	OverwritePattern uint32 `json:"overwrite_pattern"`
}

// Dwords is CDW10 and CDW11.
func (f SanitizeFields) Dwords() (cdw10, cdw11 uint32) {
	return uint32(f.Action&7) | uint32(bit8(f.AllowUnrestrictedExit, 3)) | uint32(f.OverwritePasses&15)<<4 |
		uint32(bit8(f.InvertPattern, 0))<<8 | uint32(bit8(f.NoDeallocate, 0))<<9 | uint32(bit8(f.VerifyMedia, 0))<<10, f.OverwritePattern
}

// DecodeSanitizeFields reads CDW10 and CDW11, as a controller does. The passes of
// an overwrite are one-based; those of another action are 0.
func DecodeSanitizeFields(cdw10, cdw11 uint32) SanitizeFields {
	f := SanitizeFields{
		Action: SanitizeAction(cdw10 & 7), AllowUnrestrictedExit: cdw10>>3&1 != 0, OverwritePasses: uint8(cdw10 >> 4 & 15),
		InvertPattern: cdw10>>8&1 != 0, NoDeallocate: cdw10>>9&1 != 0, VerifyMedia: cdw10>>10&1 != 0, OverwritePattern: cdw11,
	}
	if f.Action == SanitizeOverwriteMedia && f.OverwritePasses == 0 {
		f.OverwritePasses = 16
	}
	return f
}

// Validate refuses what no drive may be sent.
func (f SanitizeFields) Validate() error {
	erases := f.Action >= SanitizeBlockErase && f.Action <= SanitizeCryptoErase
	switch {
	case f.Action < SanitizeExitFailure || f.Action > SanitizeExitVerification:
		return fmt.Errorf("sanitize: %w: action %d", ErrInvalidData, f.Action)
	case f.OverwritePasses > 16 || f.OverwritePasses != 0 && f.Action != SanitizeOverwriteMedia,
		f.OverwritePattern != 0 && f.Action != SanitizeOverwriteMedia,
		f.Action == SanitizeOverwriteMedia && f.OverwritePasses == 0:
		return fmt.Errorf("sanitize: %w: %d overwrite passes of pattern %#x for %s", ErrInvalidData, f.OverwritePasses, f.OverwritePattern, f.Action)
	case !erases && (f.AllowUnrestrictedExit || f.NoDeallocate || f.VerifyMedia || f.InvertPattern):
		return fmt.Errorf("sanitize: %w: %s takes no options", ErrInvalidData, f.Action)
	}
	return nil
}

// Has says that the drive announces the action.
func (c SanitizeCapabilities) Has(a SanitizeAction) bool {
	switch a {
	case SanitizeBlockErase:
		return c&SanitizeBlock != 0
	case SanitizeCryptoErase:
		return c&SanitizeCrypto != 0
	case SanitizeOverwriteMedia:
		return c&SanitizeOverwrite != 0
	case SanitizeExitFailure:
		return c&(SanitizeBlock|SanitizeCrypto|SanitizeOverwrite) != 0
	case SanitizeExitVerification:
		return c&SanitizeVerification != 0
	}
	return false
}

// SanitizeVerification (VERS, bit 3): the media verification state is supported.
const SanitizeVerification SanitizeCapabilities = 1 << 3

// NoDeallocateInhibited (NDI, bit 29): a sanitize that asks not to deallocate is
// refused, or ignores the wish, by the no-deallocate response mode.
func (c SanitizeCapabilities) NoDeallocateInhibited() bool { return c>>29&1 != 0 }

// NoDeallocateModifies is NODMMAS, bits 31:30: 0 not defined, 1 the media is not
// additionally modified after a sanitize without deallocation, 2 it is.
func (c SanitizeCapabilities) NoDeallocateModifies() uint8 { return uint8(c >> 30) }

// SanitizeState is the status of the most recent sanitize: SSTAT bits 2:0.
type SanitizeState uint8

// The values of SanitizeState.
const (
	SanitizeNever              SanitizeState = 0 // the drive has never been sanitized
	SanitizeDone               SanitizeState = 1
	SanitizeRunning            SanitizeState = 2
	SanitizeFailed             SanitizeState = 3
	SanitizeDoneNotDeallocated SanitizeState = 4 // done; deallocated although the host asked not to
)

// String is the state in words.
func (s SanitizeState) String() string {
	switch s {
	case SanitizeNever:
		return "never sanitized"
	case SanitizeDone:
		return "completed"
	case SanitizeRunning:
		return "in progress"
	case SanitizeFailed:
		return "failed"
	case SanitizeDoneNotDeallocated:
		return "completed, deallocated all the same"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText gives what String gives.
func (s SanitizeState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *SanitizeState) UnmarshalText(b []byte) error {
	v, err := unname(string(b), 8, "", func(i int) string { return SanitizeState(i).String() })
	*s = SanitizeState(v)
	return err
}

// Offsets of the sanitize status log (81h).
const (
	offSaniSPROG  = 0
	offSaniSSTAT  = 2
	offSaniSCDW10 = 4
	offSaniETO    = 8
	offSaniETBE   = 12
	offSaniETCE   = 16
	offSaniETOND  = 20
	offSaniETBEND = 24
	offSaniETCEND = 28
	offSaniETPVDS = 32
	offSaniSSI    = 36
)

// SanitizeProgressWhole is the progress counter's whole: SPROG counts 65536ths.
const SanitizeProgressWhole = 1 << 16

// SanitizeLog is the sanitize status log (81h). Estimates are in seconds; not
// reported is FFFFFFFFh on the wire, and 0 means that the operation is done when
// its command is.
type SanitizeLog struct {
	// Progress is SPROG, in 65536ths of the whole; it is FFFFh while none runs.
	Progress uint16        `json:"progress_65536ths"`
	State    SanitizeState `json:"state"`
	// CompletedPasses is how many passes of an overwrite are done, 0..31.
	CompletedPasses uint8 `json:"completed_passes"`
	// GlobalDataErased says that nothing was written since the last sanitize, or
	// since manufacture.
	GlobalDataErased bool `json:"global_data_erased"`
	// VerificationCancelled is SSTAT bit 9.
	VerificationCancelled bool `json:"verification_cancelled"`
	// Command is command dword 10 of the sanitize that ran last, as sent.
	Command uint32 `json:"command_dword10"`

	OverwriteSeconds              Opt[uint32] `json:"overwrite_seconds"`
	BlockEraseSeconds             Opt[uint32] `json:"block_erase_seconds"`
	CryptoEraseSeconds            Opt[uint32] `json:"crypto_erase_seconds"`
	OverwriteNoDeallocateSeconds  Opt[uint32] `json:"overwrite_no_deallocate_seconds"`
	BlockNoDeallocateSeconds      Opt[uint32] `json:"block_erase_no_deallocate_seconds"`
	CryptoNoDeallocateSeconds     Opt[uint32] `json:"crypto_erase_no_deallocate_seconds"`
	PostVerificationDeallocateSec Opt[uint32] `json:"post_verification_deallocate_seconds"`
	// StateInformation is SSI as it stands on the wire.
	StateInformation uint8 `json:"state_information_raw"`
}

// Running says that a sanitize is in progress.
func (l SanitizeLog) Running() bool { return l.State == SanitizeRunning }

// Percent is the progress in hundredths of a percent, 0..10000; 10000 where none
// runs.
func (l SanitizeLog) Percent() (hundredths uint32) {
	if !l.Running() {
		return 10000
	}
	return uint32(l.Progress) * 10000 / SanitizeProgressWhole
}

// Estimate is how long a sanitize of this kind takes, in seconds, where the
// drive reports it.
func (l SanitizeLog) Estimate(f SanitizeFields) Opt[uint32] {
	switch f.Action {
	case SanitizeBlockErase:
		return l.BlockEraseSeconds
	case SanitizeCryptoErase:
		return l.CryptoEraseSeconds
	case SanitizeOverwriteMedia:
		// The log's figure is for 16 passes.
		if s, ok := l.OverwriteSeconds.Get(); ok {
			return Some(uint32((uint64(s)*uint64(f.OverwritePasses) + 15) / 16))
		}
	}
	return None[uint32]()
}

func (l *SanitizeLog) estimates() [7]struct {
	off int
	v   *Opt[uint32]
} {
	return [...]struct {
		off int
		v   *Opt[uint32]
	}{
		{offSaniETO, &l.OverwriteSeconds}, {offSaniETBE, &l.BlockEraseSeconds}, {offSaniETCE, &l.CryptoEraseSeconds},
		{offSaniETOND, &l.OverwriteNoDeallocateSeconds}, {offSaniETBEND, &l.BlockNoDeallocateSeconds},
		{offSaniETCEND, &l.CryptoNoDeallocateSeconds}, {offSaniETPVDS, &l.PostVerificationDeallocateSec},
	}
}

// DecodeSanitizeLog reads the log.
func DecodeSanitizeLog(b []byte) (SanitizeLog, error) {
	p, err := view(b, SanitizeLogSize, "sanitize log")
	if err != nil {
		return SanitizeLog{}, err
	}
	sstat := p.u16(offSaniSSTAT)
	l := SanitizeLog{
		Progress: p.u16(offSaniSPROG), State: SanitizeState(sstat & 7), CompletedPasses: uint8(sstat >> 3 & 31),
		GlobalDataErased: sstat>>8&1 != 0, VerificationCancelled: sstat>>9&1 != 0,
		Command: p.u32(offSaniSCDW10), StateInformation: p.u8(offSaniSSI),
	}
	for _, e := range l.estimates() {
		if s := p.u32(e.off); s != 0xFFFFFFFF {
			*e.v = Some(s)
		}
	}
	return l, nil
}

// Append appends the 512 bytes of the log.
func (l SanitizeLog) Append(b []byte) []byte {
	b, p := grow(b, SanitizeLogSize)
	p.put16(offSaniSPROG, l.Progress)
	p.put16(offSaniSSTAT, uint16(l.State&7)|uint16(l.CompletedPasses&31)<<3|
		uint16(bit8(l.GlobalDataErased, 0))<<8|uint16(bit8(l.VerificationCancelled, 0))<<9)
	p.put32(offSaniSCDW10, l.Command)
	for _, e := range l.estimates() {
		p.put32(e.off, e.v.Or(0xFFFFFFFF))
	}
	p.put8(offSaniSSI, l.StateInformation)
	return b
}

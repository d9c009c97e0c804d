package sim

import (
	"slices"

	"nvop/nvmeioctl/nvmespec"
)

// maxSelfTestResults is how many results the self-test log holds.
const maxSelfTestResults = nvmespec.SelfTestResultsMax

// selfTest is the device self-test, by the drive's clock.
type selfTest struct {
	// Code is 1 for a short and 2 for an extended test in progress, 0 for none.
	Code    uint8            `json:"code"`
	NSID    uint32           `json:"nsid"`
	StartNS int64            `json:"start_ns"`
	Results []selfTestResult `json:"results"` // newest first
}

type selfTestResult struct {
	Code uint8 `json:"code"`
	// Result is a nvmespec.SelfTestOutcome.
	Result uint8  `json:"result"`
	Hours  uint64 `json:"hours"`
	NSID   uint32 `json:"nsid"`
	// Segment and LBA are where a test failed: SelfTestFailedSegment only.
	Segment uint8  `json:"segment,omitempty"`
	LBA     uint64 `json:"lba,omitempty"`
}

// selfTestMinutes is how long an extended test takes (EDSTT), as the SN861 in
// public reports says.
const selfTestMinutes = 12

// durationNS is how long a self-test takes: 2 minutes short.
func (t *selfTest) durationNS() int64 {
	if t.Code == uint8(nvmespec.SelfTestExtended) {
		return selfTestMinutes * 60e9
	}
	return 120e9
}

// finish ends the self-test with a result.
func (t *selfTest) finish(result uint8, nowNS int64) {
	t.end(selfTestResult{Result: result}, nowNS)
}

func (t *selfTest) end(r selfTestResult, nowNS int64) {
	if t.Code == 0 {
		return
	}
	r.Code, r.Hours, r.NSID = t.Code, hours(nowNS), t.NSID
	t.Results = slices.Insert(t.Results, 0, r)
	t.Results = t.Results[:min(len(t.Results), maxSelfTestResults)]
	t.Code = 0
}

// reset is what any reset does to a self-test: it ends a short one; an extended
// one goes on (NVMe Base 2.x, "Extended Device Self-Test Operation").
func (t *selfTest) reset(nowNS int64) {
	if t.Code == uint8(nvmespec.SelfTestShort) {
		t.finish(uint8(nvmespec.SelfTestAbortedReset), nowNS)
	}
}

// settleSelfTest ends a self-test whose time has come; it says whether it did. A
// test finds blocks that cannot be read: that is its fourth segment.
func (d *Drive) settleSelfTest(now int64) bool {
	const mediaSegment = 4
	t := &d.st.SelfTest
	if t.Code == 0 || now-t.StartNS < t.durationNS() {
		return false
	}
	r := selfTestResult{Result: uint8(nvmespec.SelfTestPassed)}
	for _, b := range d.st.Faults.Bad {
		if !b.Write && (t.NSID == nsidAll || t.NSID == b.NSID) {
			r = selfTestResult{Result: uint8(nvmespec.SelfTestFailedSegment), Segment: mediaSegment, LBA: b.First}
			break
		}
	}
	t.end(r, t.StartNS+t.durationNS())
	return true
}

// hours is the power-on hours at an instant of the drive's clock.
func hours(ns int64) uint64 { return uint64(ns / 3600e9) }

// startSelfTest carries out Device Self-test.
func startSelfTest(r *request) (uint32, nvmespec.Status) {
	code, nsid := nvmespec.DecodeSelfTestFields(r.cmd.CDW10).Code, r.cmd.NSID
	if nsid != 0 && nsid != nsidAll && nsid > r.profile().MaxNamespaces {
		return r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
	}
	if nsid != 0 && nsid != nsidAll && !r.active(nsid) {
		return r.fail(nvmespec.StatusInvalidField, paramNSID)
	}
	now := int64(r.d.clock.Now())
	switch code {
	case nvmespec.SelfTestShort, nvmespec.SelfTestExtended:
		if r.state().SelfTest.Code != 0 {
			return r.fail(nvmespec.StatusSelfTestInProgress, paramCDW10)
		}
		return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
			st.SelfTest.Code, st.SelfTest.NSID, st.SelfTest.StartNS = uint8(code), nsid, now
			return 0, nvmespec.StatusSuccess
		})
	case nvmespec.SelfTestAbort:
		return r.d.commit(func(st *state) (uint32, nvmespec.Status) {
			st.SelfTest.finish(uint8(nvmespec.SelfTestAborted), now)
			return 0, nvmespec.StatusSuccess
		})
	}
	return r.fail(nvmespec.StatusInvalidField, paramCDW10)
}

// selfTestLog is the device self-test log.
func selfTestLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	t := &r.state().SelfTest
	log := nvmespec.SelfTestLog{Current: nvmespec.SelfTestCode(t.Code)}
	if t.Code != 0 {
		log.CompletedPercent = nvmespec.Some(uint8(min((int64(r.d.clock.Now())-t.StartNS)*100/t.durationNS(), 99)))
	}
	for _, res := range t.Results {
		entry := nvmespec.SelfTestResult{Code: nvmespec.SelfTestCode(res.Code), Outcome: nvmespec.SelfTestOutcome(res.Result), PowerOnHours: res.Hours}
		if res.NSID != 0 {
			entry.NSID = nvmespec.Some(res.NSID)
		}
		if entry.Outcome == nvmespec.SelfTestFailedSegment {
			entry.SegmentNumber, entry.FailingLBA = res.Segment, nvmespec.Some(res.LBA)
			entry.StatusType, entry.StatusCode = nvmespec.Some(nvmespec.StatusUnrecoveredRead.SCT()), nvmespec.Some(uint8(nvmespec.StatusUnrecoveredRead&0xFF))
		}
		log.Results = append(log.Results, entry)
	}
	return log.Append(nil), nvmespec.StatusSuccess
}

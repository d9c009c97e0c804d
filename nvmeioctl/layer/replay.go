package layer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// NotRecordedError says that a recording has no answer to a command. It Is
// nvmeioctl.ErrNotSupported, so that what is optional counts as missing.
type NotRecordedError struct {
	// Recording names the recording, Command is the command in words.
	Recording, Command string
	// Reason is "not recorded" in particular.
	Reason string
}

func (e *NotRecordedError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Recording, e.Reason, e.Command)
}

// Is makes it an nvmeioctl.ErrNotSupported.
func (e *NotRecordedError) Is(target error) bool { return target == nvmeioctl.ErrNotSupported }

// ExitCode is the process's exit code for this error.
func (e *NotRecordedError) ExitCode() int { return 5 }

// request is what of a command decides its answer.
type request struct {
	io                  bool
	opcode              uint8
	nsid, cdw2, cdw3    uint32
	cdw10, cdw11, cdw12 uint32
	cdw13, cdw14, cdw15 uint32
	length              int
}

// requestOf is the request of a command; reading a log does not depend on
// whether its event is kept.
func requestOf(e *Exchange) request {
	r := request{e.IO, e.Opcode, e.NSID, e.CDW2, e.CDW3, e.CDW10, e.CDW11, e.CDW12, e.CDW13, e.CDW14, e.CDW15, e.Length}
	if !e.IO && e.Opcode == nvmespec.AdminGetLogPage {
		r.cdw10 &^= 1 << 15
	}
	return r
}

// logKey names a log page; pieces of one log at any offset belong together.
type logKey struct {
	nsid             uint32
	id               nvmespec.LogID
	specific         uint8
	logSpecific      uint16
	uuid, commandSet uint8
}

// logContent is what is known of a log page: bytes from its start on.
type logContent struct {
	data   []byte
	length int // bytes known, zeros at the end included
}

// Replay is a device that answers from a recording. Make one with [NewReplay].
type Replay struct {
	name string
	rec  *Recording
	mu   sync.Mutex
	// answers are the exchanges of each request in the order recorded, next the
	// one that is due: a drive whose counters moved moves again. The last one
	// stays.
	answers map[request][]*Exchange
	next    map[request]int
	logs    map[logKey]*logContent
}

// NewReplay makes a device of a recording; name is how messages call it. It
// answers what was recorded, in the order it was recorded, and any part of a log
// page whose bytes were recorded, whatever the pieces were. It refuses what would
// change a drive; everything else gets a *NotRecordedError.
func NewReplay(name string, rec *Recording) *Replay {
	r := &Replay{name: name, rec: rec, answers: map[request][]*Exchange{}, next: map[request]int{}, logs: map[logKey]*logContent{}}
	for i := range rec.Exchanges {
		e := &rec.Exchanges[i]
		key := requestOf(e)
		r.answers[key] = append(r.answers[key], e)
		r.learn(e)
	}
	return r
}

// Recording is what is replayed.
func (r *Replay) Recording() *Recording { return r.rec }

// contentMax bounds what is put together of one log.
const contentMax = 64 << 20

// learn puts a piece of a log page to the others. Only pieces that touch what is
// known count: a hole would read as zeros. Later pieces win.
func (r *Replay) learn(e *Exchange) {
	if e.IO || e.Opcode != nvmespec.AdminGetLogPage || nvmespec.Status(e.Status).Code() != 0 || e.Error != "" {
		return
	}
	f := e.logFields()
	end := f.OffsetBytes + uint64(e.Length)
	if f.LengthBytes != uint64(e.Length) || end > contentMax || end < f.OffsetBytes {
		return
	}
	key := keyOf(e.NSID, f)
	l := r.logs[key]
	if l == nil {
		l = &logContent{}
		r.logs[key] = l
	}
	if f.OffsetBytes > uint64(l.length) {
		return
	}
	l.length = max(l.length, int(end))
	l.data = slices.Grow(l.data, max(int(f.OffsetBytes)+len(e.Data)-len(l.data), 0))
	if need := int(f.OffsetBytes) + len(e.Data); len(l.data) < need {
		l.data = append(l.data, make([]byte, need-len(l.data))...)
	}
	at := l.data[min(int(f.OffsetBytes), len(l.data)):]
	n := copy(at, e.Data)
	clear(at[n:min(e.Length, len(at))])
}

func keyOf(nsid uint32, f nvmespec.GetLogFields) logKey {
	if nsid == 0 {
		nsid = nvmespec.BroadcastNSID // both name the controller's own log
	}
	if f.Log == nvmespec.LogIDPersistentEvents || f.Log == nvmespec.LogIDTelemetryHost {
		f.Specific = 0 // what it does is not what it reads
	}
	return logKey{nsid, f.Log, f.Specific, f.LogSpecificID, f.UUIDIndex, f.CommandSet}
}

// Submit implements nvmeioctl.Device.
func (r *Replay) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if cmd.Timeout <= 0 {
		return nvmeioctl.Completion{}, &nvmeioctl.RefusedError{Check: "time-out", Subject: r.name, Reason: fmt.Sprintf("command %02xh has no timeout", cmd.Opcode)}
	}
	if class := nvmespec.ClassOf(!cmd.IO, cmd.Opcode, cmd.CDW10); class&(nvmespec.ClassRead|nvmespec.ClassUnknown) == 0 {
		return nvmeioctl.Completion{}, &NotRecordedError{Recording: r.name, Reason: "a recording cannot be changed", Command: FormatCommand(cmd)}
	}
	e := &Exchange{
		IO: cmd.IO, Opcode: cmd.Opcode, NSID: cmd.NSID, CDW2: cmd.CDW2, CDW3: cmd.CDW3, CDW10: cmd.CDW10, CDW11: cmd.CDW11,
		CDW12: cmd.CDW12, CDW13: cmd.CDW13, CDW14: cmd.CDW14, CDW15: cmd.CDW15, Length: len(cmd.Data),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := requestOf(e)
	if list := r.answers[key]; len(list) > 0 {
		i := r.next[key]
		r.next[key] = min(i+1, len(list)-1)
		return answer(r.name, list[i], cmd)
	}
	if r.partOfLog(e, cmd) {
		return nvmeioctl.Completion{}, nil
	}
	return nvmeioctl.Completion{}, &NotRecordedError{Recording: r.name, Reason: "the recording has no answer to this", Command: FormatCommand(cmd)}
}

// answer gives what was recorded.
func answer(name string, e *Exchange, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if e.Error != "" {
		return nvmeioctl.Completion{}, fmt.Errorf("%s: when recorded: %s", name, e.Error)
	}
	if !cmd.IO && cmd.ReadsFromDevice() && nvmespec.Status(e.Status).Code() == 0 {
		n := copy(cmd.Data, e.Data)
		clear(cmd.Data[n:])
	}
	return nvmeioctl.Completion{Status: nvmespec.Status(e.Status), Result: e.Result}, nil
}

// partOfLog answers a Get Log Page from what is known of the page.
func (r *Replay) partOfLog(e *Exchange, cmd *nvmeioctl.Command) bool {
	if e.IO || e.Opcode != nvmespec.AdminGetLogPage {
		return false
	}
	f := e.logFields()
	l := r.logs[keyOf(e.NSID, f)]
	if l == nil || f.OffsetBytes >= uint64(l.length) || f.LengthBytes > uint64(l.length)-f.OffsetBytes || f.LengthBytes > uint64(len(cmd.Data)) {
		return false
	}
	clear(cmd.Data)
	if at := int(f.OffsetBytes); at < len(l.data) {
		copy(cmd.Data[:f.LengthBytes], l.data[at:])
	}
	return true
}

func (r *Replay) String() string { return r.name }

// Close implements nvmeioctl.Device.
func (r *Replay) Close() error { return nil }

// ServedReplay is a recording as hosts get to see it over a network: every
// command gets a status, since a host cannot be given an error. Make one with
// [Replay.Served].
type ServedReplay struct{ *Replay }

// Served is the recording for a target. What it has no answer to is refused with
// the status that a drive without the thing gives; what would change a drive, and
// what reads or writes its data, with "operation denied".
func (r *Replay) Served() *ServedReplay { return &ServedReplay{r} }

// Submit implements nvmeioctl.Device.
func (s *ServedReplay) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	c, err := s.Replay.Submit(ctx, cmd)
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	status := nvmespec.StatusInvalidField
	switch {
	case cmd.IO && cmd.Opcode == nvmespec.IOOpFlush:
		return nvmeioctl.Completion{}, nil // there is nothing to flush
	case cmd.IO, nvmespec.ClassOf(true, cmd.Opcode, cmd.CDW10) != nvmespec.ClassRead:
		status = nvmespec.StatusOperationDenied
	case cmd.Opcode == nvmespec.AdminGetLogPage:
		status = nvmespec.StatusInvalidLogPage
	}
	return nvmeioctl.Completion{Status: status | nvmespec.StatusDNR}, nil
}

// ResetController implements nvmeioctl.Resetter: a recording has nothing to reset.
func (s *ServedReplay) ResetController(ctx context.Context) error { return ctx.Err() }

// ResetSubsystem implements nvmeioctl.Resetter.
func (s *ServedReplay) ResetSubsystem(ctx context.Context) error { return ctx.Err() }

// Rescan implements nvmeioctl.Resetter.
func (s *ServedReplay) Rescan(ctx context.Context) error { return ctx.Err() }

var (
	_ nvmeioctl.Device   = (*Recorder)(nil)
	_ nvmeioctl.Wrapper  = (*Recorder)(nil)
	_ nvmeioctl.Device   = (*Replay)(nil)
	_ nvmeioctl.Resetter = (*ServedReplay)(nil)
)

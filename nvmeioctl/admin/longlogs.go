package admin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// longChunkBytes is the most that one command of a long log transfers. Less than
// most controllers allow: a drive that builds the data as it goes answers each
// piece within its time-out.
const longChunkBytes = 128 << 10

// LongLogLimit bounds what a telemetry or persistent event log may claim to be:
// far above any drive, and below what would fill a disk.
const LongLogLimit = 16 << 30

// Progress is told how many of how many bytes of a long log are there.
type Progress func(done, total uint64)

func (p Progress) tell(done, total uint64) {
	if p != nil {
		p(done, total)
	}
}

// LogLimits is how the logs of a controller can be read.
type LogLimits struct {
	// Extended says that offsets are taken (LPA bit 2).
	Extended bool
	// MaxTransferBytes bounds one command; 0 is no limit.
	MaxTransferBytes uint64
}

// LimitsOf are the limits that a controller announces.
func LimitsOf(c nvmespec.Controller) LogLimits {
	return LogLimits{Extended: c.Logs&nvmespec.LogExtended != 0, MaxTransferBytes: c.MaxTransferBytes}
}

func (l LogLimits) chunk() uint64 {
	n := uint64(longChunkBytes)
	if l.MaxTransferBytes != 0 {
		n = min(n, l.MaxTransferBytes)
	}
	return max(n, plainLogBytes) &^ 511
}

// copyLog writes a part of a log to w, piece by piece. first is what has been
// read already of its start.
func copyLog(ctx context.Context, dev nvmeioctl.Device, op string, r LogRequest, chunk uint64, w io.Writer, progress Progress) error {
	total, start := r.Fields.LengthBytes, r.Fields.OffsetBytes
	for done := uint64(0); done < total; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := r
		part.Fields.OffsetBytes, part.Fields.LengthBytes = start+done, min(total-done, chunk)
		part.MaxTransferBytes = chunk
		b, err := getLog(ctx, dev, op, part)
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return opError(op, dev, r.NSID, err)
		}
		done += part.Fields.LengthBytes
		progress.tell(start+done, start+total)
	}
	return nil
}

// TelemetryRequest says which telemetry to read.
type TelemetryRequest struct {
	// Controller reads the controller-initiated log (08h) instead of the
	// host-initiated one (07h).
	Controller bool
	// Keep reads the host-initiated data that were captured before, instead of
	// having the controller capture them now.
	Keep bool
	// Area is the highest data area wanted, 1..4; 0 is the highest that has data.
	Area int
	// Acknowledge clears the controller-initiated log's event at the end, so that
	// the controller may capture anew. Otherwise reading changes nothing there.
	Acknowledge bool
	Limits      LogLimits
	Progress    Progress
}

// TelemetryHeader reads the header of a telemetry log. Unless r.Keep is set, of
// the host-initiated one it has the controller capture data now.
func TelemetryHeader(ctx context.Context, dev nvmeioctl.Device, r TelemetryRequest) (nvmespec.TelemetryHeader, error) {
	h, _, err := telemetryHeader(ctx, dev, r)
	return h, err
}

func (r TelemetryRequest) log() nvmespec.LogID {
	if r.Controller {
		return nvmespec.LogIDTelemetryController
	}
	return nvmespec.LogIDTelemetryHost
}

func (r TelemetryRequest) op() string {
	if r.Controller {
		return "get controller-initiated telemetry"
	}
	return "get host-initiated telemetry"
}

func telemetryHeader(ctx context.Context, dev nvmeioctl.Device, r TelemetryRequest) (nvmespec.TelemetryHeader, []byte, error) {
	f := nvmespec.GetLogFields{Log: r.log(), RetainEvent: true, LengthBytes: nvmespec.TelemetryHeaderSize}
	if !r.Controller && !r.Keep {
		f.Specific = 1 // Create Telemetry Host-Initiated Data
	}
	b, err := getLog(ctx, dev, r.op(), LogRequest{NSID: nvmespec.BroadcastNSID, Fields: f})
	if err != nil {
		return nvmespec.TelemetryHeader{}, nil, err
	}
	h, err := nvmespec.DecodeTelemetryHeader(b)
	if err == nil && h.Log != r.log() {
		err = fmt.Errorf("%w: the drive answered with log %s", nvmespec.ErrInvalidData, h.Log)
	}
	return h, b, opError(r.op(), dev, 0, err)
}

// Telemetry writes a telemetry log, header and data areas, to w. The data must
// not change while they are read, so the generation is looked at again at the
// end: a change is an error, and what was written is no consistent log.
func Telemetry(ctx context.Context, dev nvmeioctl.Device, r TelemetryRequest, w io.Writer) (nvmespec.TelemetryHeader, error) {
	h, head, err := telemetryHeader(ctx, dev, r)
	if err != nil {
		return h, err
	}
	area := r.Area
	if area == 0 {
		area = max(h.Areas(), 1)
	}
	total := h.SizeBytes(area)
	if area > 4 || area < 0 || total > LongLogLimit {
		return h, opError(r.op(), dev, 0, fmt.Errorf("%w: data area %d of %d bytes", nvmespec.ErrInvalidData, area, total))
	}
	if total > nvmespec.TelemetryHeaderSize && !r.Limits.Extended {
		return h, opError(r.op(), dev, 0, &nvmeioctl.UnsupportedError{Feature: "reading telemetry data",
			Needs: "Get Log Page with offsets (LPA bit 2)"})
	}
	if _, err := w.Write(head); err != nil {
		return h, opError(r.op(), dev, 0, err)
	}
	rest := LogRequest{NSID: nvmespec.BroadcastNSID, Extended: true, Fields: nvmespec.GetLogFields{
		Log: r.log(), RetainEvent: true, OffsetBytes: uint64(len(head)), LengthBytes: total - uint64(len(head))}}
	if err := copyLog(ctx, dev, r.op(), rest, r.Limits.chunk(), w, r.Progress); err != nil {
		return h, err
	}
	return h, r.sameGeneration(ctx, dev, h)
}

// sameGeneration looks at the header again, clearing the event where asked to.
func (r TelemetryRequest) sameGeneration(ctx context.Context, dev nvmeioctl.Device, h nvmespec.TelemetryHeader) error {
	f := nvmespec.GetLogFields{Log: r.log(), RetainEvent: !r.Acknowledge, LengthBytes: nvmespec.TelemetryHeaderSize}
	b, err := getLog(ctx, dev, r.op(), LogRequest{NSID: nvmespec.BroadcastNSID, Fields: f})
	if err != nil {
		return err
	}
	again, err := nvmespec.DecodeTelemetryHeader(b)
	changed := r.Controller && again.ControllerGeneration != h.ControllerGeneration ||
		!r.Controller && again.HostGeneration != h.HostGeneration || again.LastBlocks != h.LastBlocks
	if err == nil && changed {
		err = errors.New("the drive captured new data while they were read; read them again")
	}
	return opError(r.op(), dev, 0, err)
}

// Actions of the persistent event log: its Log Specific Field.
const (
	eventsRead      = 0
	eventsEstablish = 1
	eventsRelease   = 2
)

// PersistentEvents writes the persistent event log (0Dh) to w. It establishes a
// reporting context, so that the log stands still while it is read, and gives it
// up at the end, on an error and after an interruption too. A context left behind
// by somebody else is given up first.
func PersistentEvents(ctx context.Context, dev nvmeioctl.Device, limits LogLimits, w io.Writer, progress Progress) (h nvmespec.PersistentHeader, err error) {
	const op = "get persistent event log"
	head, err := establish(ctx, dev, op)
	if err != nil {
		return h, err
	}
	defer func() {
		err = errors.Join(err, release(context.WithoutCancel(ctx), dev, op))
	}()
	if h, err = nvmespec.DecodePersistentHeader(head); err != nil {
		return h, opError(op, dev, 0, err)
	}
	total := (h.TotalBytes + 3) &^ 3
	if total > LongLogLimit {
		return h, opError(op, dev, 0, fmt.Errorf("%w: a log of %d bytes", nvmespec.ErrInvalidData, h.TotalBytes))
	}
	if total > plainLogBytes && !limits.Extended {
		return h, opError(op, dev, 0, &nvmeioctl.UnsupportedError{Feature: fmt.Sprintf("reading %d bytes of events", total),
			Needs: "Get Log Page with offsets (LPA bit 2)"})
	}
	if _, err := w.Write(head); err != nil {
		return h, opError(op, dev, 0, err)
	}
	if total == uint64(len(head)) {
		return h, nil
	}
	if !limits.Extended { // one read from the start is all there is
		b, err := getLog(ctx, dev, op, eventsRequest(eventsRead, 0, total, false))
		if err == nil {
			_, err = w.Write(b[len(head):])
		}
		return h, opError(op, dev, 0, err)
	}
	rest := eventsRequest(eventsRead, uint64(len(head)), total-uint64(len(head)), true)
	return h, copyLog(ctx, dev, op, rest, limits.chunk(), &cutWriter{w, h.TotalBytes - uint64(len(head))}, progress)
}

// cutWriter drops what was read beyond the end, to make whole dwords.
type cutWriter struct {
	w    io.Writer
	left uint64
}

func (c *cutWriter) Write(b []byte) (int, error) {
	keep := min(uint64(len(b)), c.left)
	c.left -= keep
	if _, err := c.w.Write(b[:keep]); err != nil {
		return 0, err
	}
	return len(b), nil
}

func eventsRequest(action uint8, offset, length uint64, extended bool) LogRequest {
	return LogRequest{NSID: nvmespec.BroadcastNSID, Extended: extended, Fields: nvmespec.GetLogFields{
		Log: nvmespec.LogIDPersistentEvents, Specific: action, RetainEvent: true, OffsetBytes: offset, LengthBytes: length}}
}

// establish makes a context and reads the header.
func establish(ctx context.Context, dev nvmeioctl.Device, op string) ([]byte, error) {
	r := eventsRequest(eventsEstablish, 0, nvmespec.PersistentHeaderSize, false)
	b, err := getLog(ctx, dev, op, r)
	if errors.Is(err, nvmespec.ErrSequence) { // a context exists
		if err := release(ctx, dev, op); err != nil {
			return nil, err
		}
		b, err = getLog(ctx, dev, op, r)
	}
	return b, err
}

// release gives the context up. The command has to transfer something.
func release(ctx context.Context, dev nvmeioctl.Device, op string) error {
	_, err := getLog(ctx, dev, op+", release its context", eventsRequest(eventsRelease, 0, nvmespec.PersistentHeaderSize, false))
	return err
}

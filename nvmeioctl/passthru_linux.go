package nvmeioctl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl/nvmespec"
)

// Passthru is the kernel's passthrough to one device node. It implements
// Device, Resetter and EventSource and is safe for concurrent use.
//
// Admin commands may go through either kind of node, except that namespace
// management and attachment are refused through a namespace's: the open node
// would make the namespace come back under another name, and older kernels
// deadlock when it is a multipath head. I/O commands go through a namespace's
// node only, where the kernel checks the NSID.
type Passthru struct {
	host   Host
	target Target
	// mu is held for reading while a call is under way, so that Close cannot
	// hand the descriptor's number to somebody else's file meanwhile.
	mu     sync.RWMutex
	fd     int
	closed bool
	// old is set once the kernel has said ENOTTY to the 80-byte form.
	old  atomic.Bool
	cmds sync.Pool // *callBuffer
	call ioctlFunc
	ev   eventSocket
}

// ioctlFunc is the system call; tests put their own in its place.
type ioctlFunc func(fd int, req uintptr, arg unsafe.Pointer) (int, unix.Errno)

// callBuffer is what the kernel reads and writes during one call. It lives on
// the heap, so that its address is good for the whole call, and it is reused,
// so that Submit allocates nothing.
type callBuffer struct {
	wide   passthruCmd64
	narrow passthruCmd
}

// Open opens the node of a controller (/dev/nvme0) or of a namespace
// (/dev/nvme0n1, /dev/ng0n1) for commands. Symbolic links are followed. The
// node is opened for reading, which is all that the passthrough needs and
// which, unlike opening for writing, makes udev look at nothing again.
func Open(path string) (*Passthru, error) { return Host{}.Open(path) }

// Open is like the function of the same name, below the host's root.
func (h Host) Open(path string) (*Passthru, error) {
	target, err := h.Resolve(path)
	if err != nil {
		return nil, err
	}
	node := h.under(target.Path)
	fd, err := openRetry(node)
	if err != nil {
		return nil, openError(target.Path, err)
	}
	if err := h.checkNode(fd, target); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return newPassthru(h, target, fd, sysIoctl), nil
}

func newPassthru(h Host, target Target, fd int, call ioctlFunc) *Passthru {
	return &Passthru{
		host: h, target: target, fd: fd, call: call,
		cmds: sync.Pool{New: func() any { return new(callBuffer) }},
	}
}

func openRetry(node string) (int, error) {
	for {
		fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func openError(node string, err error) error {
	call := os.NewSyscallError("open", err)
	switch err {
	case unix.EACCES, unix.EPERM:
		return fmt.Errorf("%s: %w (reading the node needs root or its group; commands need CAP_SYS_ADMIN)", node, call)
	case unix.ENXIO, unix.ENODEV:
		return fmt.Errorf("%s: %w: %w", node, ErrDeviceGone, call)
	}
	return fmt.Errorf("%s: %w", node, call)
}

// checkNode refuses a node that changed its meaning between looking and opening.
func (h Host) checkNode(fd int, target Target) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", target.Path, os.NewSyscallError("fstat", err))
	}
	if target.DeviceNumber == "" {
		return fmt.Errorf("%s: %w: sysfs gives no device number", target.Path, ErrNotNVMe)
	}
	got := formatDevice(uint64(st.Rdev))
	if got != target.DeviceNumber {
		return fmt.Errorf("%s: device number is %s and should be %s: the node changed while it was opened",
			target.Path, got, target.DeviceNumber)
	}
	return nil
}

// Target says what the open node means, as it was found when opening.
func (p *Passthru) Target() Target { return p.target }

func (p *Passthru) String() string { return p.target.Path }

// Close implements Device. It waits for the commands under way.
func (p *Passthru) Close() error {
	evErr := p.ev.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrClosed
	}
	p.closed = true
	return errors.Join(evErr, os.NewSyscallError("close", unix.Close(p.fd)))
}

// Submit implements Device. It allocates nothing when the kernel answers.
func (p *Passthru) Submit(ctx context.Context, cmd *Command) (Completion, error) {
	ms, err := timeoutMS(cmd.Timeout)
	if err != nil {
		return Completion{}, p.refuse("time-out", err.Error(), "")
	}
	if err := p.admit(cmd); err != nil {
		return Completion{}, err
	}
	if err := ctx.Err(); err != nil {
		return Completion{}, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return Completion{}, os.ErrClosed
	}
	buf := p.cmds.Get().(*callBuffer)
	buf.wide.fill(cmd, ms)
	ret, result, errno := p.send(buf, cmd.IO)
	*buf = callBuffer{} // so that the pool keeps no caller's memory alive
	p.cmds.Put(buf)
	runtime.KeepAlive(cmd)
	if errno != 0 {
		return Completion{}, p.callError(errno, true)
	}
	// A positive return is the controller's answer, not success.
	return Completion{Status: nvmespec.Status(ret), Result: result}, nil
}

// send makes the call in the widest form that the kernel knows.
func (p *Passthru) send(buf *callBuffer, io bool) (ret int, result uint64, errno unix.Errno) {
	if !p.old.Load() {
		ret, errno = p.call(p.fd, requestOf64(io), unsafe.Pointer(&buf.wide))
		if errno != unix.ENOTTY {
			return ret, buf.wide.result, errno
		}
	}
	buf.narrow.from(&buf.wide)
	ret, errno = p.call(p.fd, requestOf32(io), unsafe.Pointer(&buf.narrow))
	if errno != unix.ENOTTY {
		p.old.Store(true)
	}
	return ret, uint64(buf.narrow.result), errno
}

// sysIoctl returns the call's value, which is 0 or an NVMe status, or its errno.
func sysIoctl(fd int, req uintptr, arg unsafe.Pointer) (int, unix.Errno) {
	// JUSTIFICATION: x/sys has no ioctl that takes a pointer and returns the value.
	// SAFETY: arg points to a callBuffer on the heap, whose pointer fields keep
	// the caller's data alive and whose layout the sizes above fix; the kernel
	// keeps no address after the call.
	ret, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(ret), 0
}

// timeoutMS converts to the kernel's unit, rounding up.
func timeoutMS(d time.Duration) (uint32, error) {
	if d <= 0 {
		return 0, errors.New("the command has no time-out, and the kernel's own default is not meant for it")
	}
	ms := (int64(d) + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	if ms > math.MaxUint32 {
		return 0, fmt.Errorf("the time-out %v does not fit the kernel's 32 bits of milliseconds", d)
	}
	return uint32(ms), nil
}

// admit refuses what must not go through this kind of node.
func (p *Passthru) admit(cmd *Command) error {
	if uint64(len(cmd.Data)) > maxTransferSize || uint64(len(cmd.Metadata)) > maxTransferSize {
		return p.refuse("length", "the transfer does not fit 32 bits of length", "")
	}
	onController := p.target.Kind == NodeController
	switch {
	case cmd.IO && onController:
		return p.refuse("node", "an I/O command cannot go through a controller's node",
			"use the namespace's node")
	case cmd.IO && cmd.NSID != p.target.NSID():
		return p.refuse("node", fmt.Sprintf("the I/O command addresses namespace %d and the node is namespace %d",
			cmd.NSID, p.target.NSID()), "use that namespace's node")
	case !cmd.IO && !onController && (cmd.Opcode == opcodeNSManagement || cmd.Opcode == opcodeNSAttachment):
		return p.refuse("node", "namespace management through a namespace's own node renames it or deadlocks the kernel",
			"use the controller's node")
	}
	return nil
}

// The two opcodes that must go through the controller's node (NVMe Base
// Specification 2.x, "Opcodes for Admin Commands").
const (
	opcodeNSManagement = 0x0D
	opcodeNSAttachment = 0x15
)

func (p *Passthru) refuse(check, reason, remedy string) error {
	return &RefusedError{Check: check, Subject: p.target.Path, Reason: reason, Remedy: remedy}
}

// callError says what a failed ioctl means. A command that was sent and got no
// answer may have been carried out.
func (p *Passthru) callError(errno unix.Errno, command bool) error {
	err := os.NewSyscallError("ioctl", errno)
	switch errno {
	case unix.EINTR, unix.ETIMEDOUT:
		// The wait is not interruptible by signals: the driver returns EINTR for
		// a request that a reset or time-out cancelled after it was sent.
		if command {
			return fmt.Errorf("%w: %w", ErrIndeterminate, err)
		}
	case unix.ENODEV, unix.ENXIO:
		return fmt.Errorf("%w: %w", ErrDeviceGone, err)
	case unix.EIO:
		if p.controllersDead() {
			return fmt.Errorf("%w: %w", ErrDeviceGone, err)
		}
	case unix.EACCES, unix.EPERM:
		return fmt.Errorf("%w (the kernel allows this command only with CAP_SYS_ADMIN)", err)
	case unix.ENOTTY:
		return fmt.Errorf("%w: %w", &UnsupportedError{
			Feature: "this request", Needs: "another kind of node or a kernel that knows it",
			Have: p.target.Path + " does not take it",
		}, err)
	}
	return err
}

// controllersDead says that no controller behind the node is alive any more.
func (p *Passthru) controllersDead() bool {
	for _, c := range p.target.Controllers {
		b, err := os.ReadFile(p.host.under(filepath.Join("/sys/class/nvme", c.Name, "state")))
		if err != nil {
			continue // gone from sysfs
		}
		switch strings.TrimSpace(string(b)) {
		case "dead", "deleting", "deleting (no IO)":
		default:
			return false
		}
	}
	return true
}

// request makes an ioctl that takes no structure.
func (p *Passthru) request(ctx context.Context, req uintptr) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return 0, os.ErrClosed
	}
	ret, errno := p.call(p.fd, req, nil)
	if errno != 0 {
		return 0, p.callError(errno, false)
	}
	return ret, nil
}

// NSID asks the kernel which namespace the node stands for (NVME_IOCTL_ID); an
// UnsupportedError for a controller node.
func (p *Passthru) NSID() (uint32, error) {
	if p.target.Kind == NodeController {
		return 0, &UnsupportedError{Feature: "a namespace ID", Needs: "a namespace's node", Have: p.target.Path + " is a controller's"}
	}
	ret, err := p.request(context.Background(), reqID)
	return uint32(ret), err
}

// controllerRequest makes an ioctl that only a controller's node takes.
func (p *Passthru) controllerRequest(ctx context.Context, what string, req uintptr) error {
	if p.target.Kind != NodeController {
		return &UnsupportedError{Feature: what, Needs: "a controller's node", Have: p.target.Path + " is a namespace's"}
	}
	if _, err := p.request(ctx, req); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ResetController implements Resetter; it returns when the controller is live
// again (NVME_IOCTL_RESET waits).
func (p *Passthru) ResetController(ctx context.Context) error {
	return p.controllerRequest(ctx, "controller reset", reqReset)
}

// ResetSubsystem implements Resetter. A controller without NSSR gives an error
// with errno ENOTTY, which Is ErrNotSupported.
func (p *Passthru) ResetSubsystem(ctx context.Context) error {
	return p.controllerRequest(ctx, "subsystem reset", reqSubsysReset)
}

// Rescan implements Resetter.
func (p *Passthru) Rescan(ctx context.Context) error {
	return p.controllerRequest(ctx, "rescan", reqRescan)
}

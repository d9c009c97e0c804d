package nvmeioctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ueventBytes is the most that a kernel uevent takes (UEVENT_BUFFER_SIZE is
// 2048, plus the header line).
const ueventBytes = 8 << 10

// eventSocket listens to the kernel's uevents. The zero value is not listening.
type eventSocket struct {
	mu     sync.Mutex
	file   *os.File
	closed bool
}

// open starts listening at the first call.
func (s *eventSocket) open() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, os.ErrClosed
	}
	if s.file != nil {
		return s.file, nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// Group 1 is what the kernel itself sends; udev's rewritten copies are in 2.
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	s.file = os.NewFile(uintptr(fd), "uevents")
	return s.file, nil
}

func (s *eventSocket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

func (s *eventSocket) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// receive waits for one message of the kernel. ok is false for a message that
// somebody else sent.
func receive(file *os.File, buf []byte) (msg []byte, ok bool, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	var n int
	var from unix.Sockaddr
	var callErr error
	err = raw.Read(func(fd uintptr) bool {
		n, from, callErr = unix.Recvfrom(int(fd), buf, 0)
		return callErr != unix.EAGAIN && callErr != unix.EINTR
	})
	if err != nil {
		return nil, false, err
	}
	if callErr != nil {
		return nil, false, os.NewSyscallError("recvfrom", callErr)
	}
	nl, isNL := from.(*unix.SockaddrNetlink)
	return buf[:n], isNL && nl.Pid == 0, nil
}

// NextEvent implements EventSource with the kernel's uevents. The kernel passes
// on error, SMART and vendor events; notices (a namespace changed, firmware
// activation) it handles itself and does not. Events before the first call are
// not seen. A receive buffer that overflowed is an error with errno ENOBUFS:
// events were lost, the next call goes on.
func (p *Passthru) NextEvent(ctx context.Context) (Event, error) {
	file, err := p.ev.open()
	if err != nil {
		return Event{}, fmt.Errorf("%s: events: %w", p, err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// An instant in the past wakes the read up. A closed file needs no waking.
		_ = file.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-woken // or it could spoil the next call's wait
			_ = file.SetReadDeadline(time.Time{})
		}
	}()
	buf := make([]byte, ueventBytes)
	for {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		msg, ok, err := receive(file, buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil && p.ev.isClosed() {
			err = os.ErrClosed // the raw connection's own error is another
		}
		if err != nil {
			return Event{}, fmt.Errorf("%s: events: %w", p, err)
		}
		name, event, found := parseUevent(msg)
		if ok && found && p.hasController(name) {
			return event, nil
		}
	}
}

func (p *Passthru) hasController(name string) bool {
	for _, c := range p.target.Controllers {
		if c.Name == name {
			return true
		}
	}
	return false
}

// parseUevent finds the controller's name and the event in a kernel uevent
// ("change@/devices/...", then KEY=VALUE, separated by NULs).
func parseUevent(msg []byte) (name string, event Event, ok bool) {
	var path, value string
	for i, field := range bytes.Split(msg, []byte{0}) {
		if i == 0 {
			continue
		}
		key, val, _ := bytes.Cut(field, []byte("="))
		switch string(key) {
		case "DEVPATH":
			path = string(val)
		case "NVME_AEN":
			value = string(val)
		}
	}
	if path == "" || value == "" {
		return "", Event{}, false
	}
	dword, err := strconv.ParseUint(value, 0, 32) // the kernel prints %#08x
	if err != nil {
		return "", Event{}, false
	}
	return filepath.Base(path), Event{
		Type: uint8(dword & 7), Info: uint8(dword >> 8), LogPage: uint8(dword >> 16),
	}, true
}

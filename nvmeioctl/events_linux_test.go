package nvmeioctl

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseUevent(t *testing.T) {
	// The form of drivers/nvme/host/core.c, nvme_aen_uevent: %#08x of dword 0.
	msg := "change@/devices/pci0000:00/0000:00:04.0/nvme/nvme0\x00ACTION=change\x00" +
		"DEVPATH=/devices/pci0000:00/0000:00:04.0/nvme/nvme0\x00SUBSYSTEM=nvme\x00" +
		"NVME_AEN=0x020101\x00NVME_TRTYPE=pcie\x00SEQNUM=12\x00"
	name, e, ok := parseUevent([]byte(msg))
	if !ok || name != "nvme0" || e != (Event{Type: 1, Info: 1, LogPage: 2}) {
		t.Errorf("%q %+v %v", name, e, ok)
	}
	for _, bad := range []string{
		"", "\x00", "add@/devices/x\x00ACTION=add\x00DEVPATH=/devices/x\x00",
		"change@x\x00NVME_AEN=0x1\x00", "change@x\x00DEVPATH=/x/nvme0\x00NVME_AEN=zz\x00",
		"NVME_AEN=0x1\x00DEVPATH=/x/nvme0\x00",
	} {
		if name, e, ok := parseUevent([]byte(bad)); ok {
			t.Errorf("%q gives %q %+v", bad, name, e)
		}
	}
}

func FuzzParseUevent(f *testing.F) {
	f.Add([]byte("change@/d/nvme0\x00DEVPATH=/d/nvme0\x00NVME_AEN=0x020101\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, e, ok := parseUevent(b)
		if ok && (name == "" || e.Type > 7) {
			t.Errorf("%q %+v", name, e)
		}
	})
}

func TestNextEvent_context(t *testing.T) {
	p := fakePassthru(&fakeKernel{t: t}, NodeController)
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.fd = fd
	for range 2 { // the second call must wait again, not fall through
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		start := NewSystemClock()
		_, err := p.NextEvent(ctx)
		cancel()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Skip("no uevents in this environment: ", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if waited := start.Now().Sub(0); waited < 15*time.Millisecond {
			t.Errorf("returned after %v", waited)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Close ends a wait that is under way.
func TestNextEvent_closed(t *testing.T) {
	p := fakePassthru(&fakeKernel{t: t}, NodeController)
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.fd = fd
	ended := make(chan error, 1)
	go func() {
		_, err := p.NextEvent(t.Context())
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond) // the wait has begun, or ends at once
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
}

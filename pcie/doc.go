// Package pcie reads the PCI Express path of a drive and says what it can
// carry: registers, the path to the root port, payload rules, the bandwidth
// ceiling, and a safe order of writes that changes payload sizes.
//
// Registers come from configuration space as sysfs shows it ([Sysfs]) or from
// an `lspci -xxxx` text as people attach it to bug reports ([ParseDump]). Both
// give a [Topology]; a [Path] through it is judged by [Audit], and
// [PlanChange] turns a wish into ordered register writes. Only
// [Sysfs.WriteRegister] ever writes, and only the bits of one 16-bit register
// that its mask names: a wider or unmasked write could clear status bits or
// start a Function Level Reset by accident.
//
// The package imports nothing of this project and knows no NVMe commands.
//
// Sources: PCI Express Base Specification, chapters 2 and 7; Linux
// include/uapi/linux/pci_regs.h, drivers/pci/probe.c and pci-sysfs.c.
package pcie

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors to test with errors.Is.
var (
	// ErrGone: every byte reads as ff. The device was removed, is powered off,
	// or its link is down; nothing of it may be decoded.
	ErrGone = errors.New("device is gone: its configuration space reads as all ones")
	// ErrNoAccess: only the header could be read. The kernel gives a process
	// without CAP_SYS_ADMIN in the initial user namespace 64 bytes and no error.
	ErrNoAccess = errors.New("only the first 64 bytes of configuration space can be read: the rest needs CAP_SYS_ADMIN (root outside a container)")
	// ErrNotFound: no function has this address.
	ErrNotFound = errors.New("no such PCI function")
)

// Address is domain:bus:device.function. Domains above ffff are made by the
// kernel for functions behind an Intel VMD.
type Address struct {
	Domain uint32
	Bus    uint8
	// Device is 0 to 31, Function 0 to 7.
	Device, Function uint8
}

// String is the address as the kernel writes it: "0000:01:00.0".
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// MarshalText writes the address as String does.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

// Compare orders addresses as lspci lists them.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

// ParseAddress reads "0000:01:00.0", "10000:e1:00.0" or, with domain 0,
// "01:00.0".
func ParseAddress(s string) (Address, error) {
	bad := func() (Address, error) {
		return Address{}, fmt.Errorf("%.40q is no PCI address (domain:bus:device.function in hexadecimal)", s)
	}
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 {
		return bad()
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok || len(device) != 2 || len(function) != 1 {
		return bad()
	}
	var a Address
	for _, f := range []struct {
		text string
		bits int
		set  func(uint64)
	}{
		{parts[0], 32, func(n uint64) { a.Domain = uint32(n) }},
		{parts[1], 8, func(n uint64) { a.Bus = uint8(n) }},
		{device, 5, func(n uint64) { a.Device = uint8(n) }},
		{function, 3, func(n uint64) { a.Function = uint8(n) }},
	} {
		n, err := strconv.ParseUint(f.text, 16, f.bits)
		if err != nil || strings.ContainsAny(f.text, "+-_") {
			return bad()
		}
		f.set(n)
	}
	return a, nil
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/nvmespec"
)

// consentFlags is how a user agrees to a change.
type consentFlags struct {
	ConfirmSerial string   `help:"Agree to the change by the drive's serial number, instead of typing it when asked." placeholder:"SERIAL"`
	Accept        []string `help:"Go on although the drive shows this use: reader, partition-table, signature or unknown (also what could not be read of the drive itself)." placeholder:"KIND"`
}

// consent is an agreement to change one drive.
type consent struct {
	identity nvmeioctl.Identity
	accept   []inuse.Kind
	// touches are the namespaces whose users are looked for; nil means all.
	touches []uint32
	// nsids and classes are what the guard lets through.
	nsids   []uint32
	classes nvmespec.Class
	// resets lets a controller reset through, subsystem a subsystem reset.
	resets, subsystem bool
	expires           nvmeioctl.Instant
}

// consentHours is how long an agreement holds: longer than any command, and
// not so long that a forgotten resume surprises anybody.
const consentHours = 24

func (c consentFlags) kinds() ([]inuse.Kind, error) {
	var list []inuse.Kind
	for _, name := range c.Accept {
		found := false
		for _, k := range inuse.Kinds() {
			found = found || string(k) == name
		}
		if !found {
			return nil, usagef("--accept %s: not a use that can be accepted; those are %v", name, inuse.Kinds())
		}
		list = append(list, inuse.Kind(name))
	}
	return list, nil
}

// acceptsUnread says that what could not be read is accepted, of the drive as of
// its use.
func (c consentFlags) acceptsUnread() bool {
	return slices.Contains(c.Accept, string(inuse.KindUnknown))
}

// confirm makes sure that the user means this drive: by its serial number on
// the command line, or typed.
func (a *app) confirm(ctx context.Context, c consentFlags, serial, what string, losses []string) error {
	refused := func(reason, remedy string) error {
		return &nvmeioctl.RefusedError{Check: "consent", Subject: "drive " + serial, Reason: reason, Remedy: remedy}
	}
	if c.ConfirmSerial != "" {
		if c.ConfirmSerial != serial {
			return refused(fmt.Sprintf("--confirm-serial says %q; nothing was changed", c.ConfirmSerial), "nvop show prints the serial number")
		}
		return nil
	}
	if !terminal(a.in) || !terminal(a.err) {
		return refused(what+" needs consent", "add --confirm-serial "+serial+" after reading what --dry-run prints")
	}
	fmt.Fprintf(a.err, "%s on drive %s\n", what, serial)
	for _, loss := range losses {
		fmt.Fprintf(a.err, "  %s\n", loss)
	}
	fmt.Fprint(a.err, "Type the serial number to go on: ")
	typed, err := readLine(ctx, a.in)
	if ctx.Err() != nil {
		return &codedError{exitInterrupted, errors.New("interrupted; nothing was changed")}
	}
	if err != nil || strings.TrimSpace(typed) != serial {
		return refused("the serial number typed is another one; nothing was changed", "")
	}
	return nil
}

// readLine reads a line, or gives up when ctx is done; the read itself cannot be
// taken back and ends with the process.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	case a := <-answers:
		return a.line, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// changeable refuses what is no drive but a recording of one.
func (d *drive) changeable() error {
	if d.transport != "replay" {
		return nil
	}
	return &nvmeioctl.UnsupportedError{Feature: "changing " + d.address, Needs: "a drive", Have: "a recording only answers what was read (--dry-run plans from it)"}
}

// checkUse refuses a drive that somebody uses.
func (d *drive) checkUse(nsids []uint32, accepted []inuse.Kind) error {
	uses, err := d.uses(nsids)
	if err != nil {
		return fmt.Errorf("%s: who uses the drive could not be found out: %w", d.address, err)
	}
	return d.refuseUse(inuse.Blocking(uses, accepted...))
}

// refuseUse is the refusal for these uses; nil where there are none.
func (d *drive) refuseUse(blocking []inuse.Use) error { return refuseUse(d.address, blocking) }

// refuseUse is the refusal of a drive or file for these uses; nil where there are
// none.
func refuseUse(address string, blocking []inuse.Use) error {
	if len(blocking) == 0 {
		return nil
	}
	var said []string
	remedy := "free it first"
	for _, u := range blocking {
		text := u.Subject + ": " + u.Detail
		if u.Process != "" {
			text += fmt.Sprintf(" (process %d, %s)", u.PID, u.Process)
		}
		said = append(said, text)
		if u.Class == inuse.AcceptOnly && remedy == "free it first" {
			remedy = "free it first, or --accept " + string(u.Kind)
		}
	}
	return &nvmeioctl.RefusedError{Check: "in use", Subject: address, Reason: strings.Join(said, "; "), Remedy: remedy}
}

// readerPatience is how long a mere reader of the drive is waited for between
// two steps: udev looks at a namespace for a moment whenever one comes or changes.
const readerPatience = 3 * time.Second

// checkUseAgain is checkUse between the steps of a change that has begun, where
// stopping costs more than a short wait.
func (d *drive) checkUseAgain(ctx context.Context, nsids []uint32, accepted []inuse.Kind) error {
	for deadline := d.clock.Now().Add(readerPatience); ; {
		uses, err := d.uses(nsids)
		if err != nil {
			return fmt.Errorf("%s: who uses the drive could not be found out: %w", d.address, err)
		}
		blocking := inuse.Blocking(uses, accepted...)
		other := slices.ContainsFunc(blocking, func(u inuse.Use) bool { return u.Kind != inuse.KindReader })
		if len(blocking) == 0 || other || d.clock.Now() >= deadline {
			return d.refuseUse(blocking)
		}
		if err := d.clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// grant opens the guard for what was agreed to, after looking at use again.
func (d *drive) grant(ctx context.Context, c consent) (nvmeioctl.Device, error) {
	if err := d.checkUseAgain(ctx, c.touches, c.accept); err != nil {
		return nil, err
	}
	return layer.Guard(d.dev, layer.Grant{
		Identity: c.identity, Classes: c.classes, NSIDs: c.nsids, Resets: c.resets, SubsystemResets: c.subsystem, Expires: c.expires, Clock: d.clock,
	}), nil
}

// preStep is the check before each step of a transaction: use again, and a
// grant for the kinds of command of this step, on the namespaces that were
// agreed to and those the transaction itself has made.
func (d *drive) preStep(c consent) func(context.Context, txn.StepInfo) (nvmeioctl.Device, error) {
	return func(ctx context.Context, info txn.StepInfo) (nvmeioctl.Device, error) {
		own := c
		own.nsids, own.classes = slices.Clone(c.touches), 0
		own.subsystem = info.Resets && resetsSubsystem(info.Step)
		own.resets = info.Resets && !own.subsystem
		for _, cmd := range info.Commands {
			own.classes |= nvmespec.ClassOf(!cmd.IO, cmd.Opcode, cmd.CDW10)
			own.nsids = append(own.nsids, cmd.NSID)
		}
		return d.grant(ctx, own)
	}
}

// expiry is when an agreement given now ends.
func (d *drive) expiry() nvmeioctl.Instant { return d.clock.Now().Add(consentHours * time.Hour) }

// useRows lays uses out for a table.
func useRows(uses []inuse.Use) [][]string {
	var rows [][]string
	for _, u := range uses {
		process := ""
		if u.PID != 0 {
			process = fmt.Sprintf("%s (%d)", u.Process, u.PID)
		}
		rows = append(rows, []string{string(u.Kind), u.Subject, u.Detail, process, u.Class.String()})
	}
	return rows
}

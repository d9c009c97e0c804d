package firmware_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/sim"
)

// An image is staged in a slot that neither runs nor is read-only, and runs after
// the next reset.
func Example() {
	profile, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	drive, err := sim.New(profile, sim.Options{Scale: 8192})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "nvop-example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	bytes, _ := sim.FirmwareImage(profile, "0B200200", 64<<10)
	path := filepath.Join(dir, "new.bin")
	if err := os.WriteFile(path, bytes, 0o600); err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	image, err := firmware.LoadImage(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := firmware.Read(ctx, drive)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := firmware.Plan(state, firmware.Want{Revision: "0B200200", Image: path}, &image, firmware.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Steps[0].Title)
	fmt.Println("undo:", plan.Steps[0].UndoText)

	identity, _ := admin.Identity(ctx, drive)
	runner := &txn.Runner{Device: drive, Clock: drive.Clock(), Log: &txn.MemoryLog{}, Registry: firmware.Executors(firmware.ExecutorOptions{}), Identify: admin.Identity}
	report, err := runner.Run(ctx, txn.Transaction{Title: "update", Identity: identity, Steps: plan.Steps})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("pending:", firmware.PendingAfter(plan.Steps, report.States).Remedy())
	// Output:
	// load firmware 0B200200 into slot 2, to run after the next reset
	// undo: makes slot 1 with revision 0B100100 the next to run again
	// pending: reset the controller (nvop reset) or reboot
}

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// A drive suffers what a script says, and a bit flips below it.
func ExampleDrive_Arm() {
	profile, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	drive, err := sim.New(profile, sim.Options{Scale: 14308, Contents: sim.ContentsSparse})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = drive.Close() }()
	plan, err := fault.Parse("media-error read nsid 1 lba 7; after 2nd read power-cut")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := drive.Arm(plan); err != nil {
		fmt.Println(err)
		return
	}
	read := func(lba uint32) ([]byte, error) {
		data := make([]byte, 512)
		done, err := drive.Submit(context.Background(), &nvmeioctl.Command{
			IO: true, Opcode: nvmespec.IOOpRead, NSID: 1, CDW10: lba, Data: data, Timeout: time.Minute})
		if err == nil {
			err = done.Err()
		}
		return data, err
	}
	_, err = read(7)
	fmt.Println("block 7:", err)
	_, err = read(8)
	fmt.Println("block 8:", errors.Is(err, nvmeioctl.ErrDeviceGone))
	_ = drive.PowerOn()

	raw, err := drive.Raw(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := raw.Flip(8, 3); err != nil {
		fmt.Println(err)
		return
	}
	data, err := read(8)
	fmt.Println("block 8 begins with", data[0], err)
	// Output:
	// block 7: controller answered unrecovered read error (0x281, do not retry)
	// block 8: true
	// block 8 begins with 8 <nil>
}

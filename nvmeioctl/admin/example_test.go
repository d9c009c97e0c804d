package admin_test

import (
	"context"
	"fmt"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// hotDrive answers every command with a SMART log.
type hotDrive struct{}

func (hotDrive) Submit(_ context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	copy(cmd.Data, nvmespec.SMART{Temperature: nvmespec.Some[nvmespec.Celsius](81)}.Append(nil))
	return nvmeioctl.Completion{}, nil
}
func (hotDrive) String() string { return "/dev/nvme0" }
func (hotDrive) Close() error   { return nil }

func ExampleSMARTLog() {
	smart, err := admin.SMARTLog(context.Background(), hotDrive{}, nvmespec.BroadcastNSID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(smart.Temperature.Value, "degrees Celsius")
	// Output: 81 degrees Celsius
}

func ExampleAttachCommand() {
	cmd, err := admin.AttachCommand(1, []uint16{0x41}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("opcode 0x%02x nsid %d cdw10 0x%08x data % x... timeout %v\n", cmd.Opcode, cmd.NSID, cmd.CDW10, cmd.Data[:4], cmd.Timeout)
	_, err = admin.AttachCommand(1, nil, 0)
	fmt.Println(err)
	// Output:
	// opcode 0x15 nsid 1 cdw10 0x00000000 data 01 00 41 00... timeout 5m0s
	// attach namespace: invalid data: a list of 0 controllers, 1 to 2047 are possible
}

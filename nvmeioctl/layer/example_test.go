package layer_test

import (
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/layer"
)

func ExampleFormatCommand() {
	fmt.Println(layer.FormatCommand(&nvmeioctl.Command{Opcode: 0x0D, CDW10: 1, NSID: 3, Timeout: 30 * time.Minute}))
	// Output: namespace management (admin 0x0d) nsid 3 cdw10 0x00000001 timeout 30m0s
}

func ExampleParseFaults() {
	plan, err := layer.ParseFaults("fail 3rd format with 0x4115; after create power-cut")
	fmt.Println(plan, err)
	_, err = layer.ParseFaults("fail 3th format with 0x4115")
	fmt.Println(err)
	// Output:
	// fail 3rd format with 0x4115; after 1st create power-cut <nil>
	// fault "fail 3th format with 0x4115": "3th" is no ordinal; one looks like 1st, 2nd, 3rd or 4th
}

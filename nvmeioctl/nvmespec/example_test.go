package nvmespec_test

import (
	"fmt"

	"nvop/nvmeioctl/nvmespec"
)

func ExampleDecodeSMART() {
	// A simulated drive encodes with the codec that the host decodes with.
	page := nvmespec.SMART{
		Temperature:      nvmespec.Some[nvmespec.Celsius](-10),
		SparePercent:     100,
		UsedPercent:      3,
		DataUnitsWritten: nvmespec.U128(116_375_603),
	}.Append(nil)

	smart, err := nvmespec.DecodeSMART(page)
	if err != nil {
		fmt.Println(err)
		return
	}
	if t, ok := smart.Temperature.Get(); ok {
		fmt.Println(t, "degrees Celsius,", t.Kelvin(), "K on the wire")
	}
	fmt.Println(nvmespec.FormatBytes(smart.BytesWritten()), "written, health", smart.HealthPercent(), "%")
	// Output:
	// -10 degrees Celsius, 263 K on the wire
	// 59.58 TB (54.19 TiB) written, health 97 %
}

func ExampleStatusError() {
	err := nvmespec.Status(0x6115).Err()
	fmt.Println(err)
	// Output: controller answered namespace insufficient capacity (0x115, do not retry, more in the error log)
}

func ExampleConsequence() {
	fmt.Println(nvmespec.Consequence(true, nvmespec.AdminNamespaceManage, 3, nvmespec.SelectDelete))
	// Output: destroys namespace 3 and all data on it; its identifiers and /dev/disk/by-id links vanish
}

package nvmeioctl_test

import (
	"errors"
	"fmt"

	"nvop/nvmeioctl"
)

// What the controller answered is in the completion; an error says that no
// answer came.
func ExampleCompletion_Err() {
	c := nvmeioctl.Completion{Status: 0x400B} // invalid namespace, do not retry
	fmt.Println(c.Err() != nil, nvmeioctl.Completion{}.Err() != nil)
	// Output: true false
}

func ExampleOpen() {
	_, err := nvmeioctl.Open("/dev/null")
	fmt.Println(errors.Is(err, nvmeioctl.ErrNotNVMe))
	// Output: true
}

package nvmetcp_test

import (
	"context"
	"fmt"
	"net"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetcp"
	"nvop/nvmeioctl/sim"
)

// Serve a simulated drive. A Linux host would connect with
//
//	nvme connect -t tcp -a 127.0.0.1 -s PORT -n NQN
//
// Here a small initiator of the tests does.
func Example() {
	profile, _ := sim.LookupProfile("client-1tb")
	drive, err := sim.New(profile, sim.Options{Serial: "EXAMPLE"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	target, err := nvmetcp.New(ctx, nvmetcp.Config{Controllers: []nvmeioctl.Device{drive}, Clock: nvmeioctl.NewSystemClock()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- target.Serve(ctx, ln) }()
	host, err := connectTo(ln.Addr().String(), target.SubsystemNQN(), testHost, digestsOn{})
	if err == nil {
		fmt.Println("controller", host.cntlid, "of", target.Stats().Sessions)
		err = host.Close()
	}
	if err != nil {
		fmt.Println(err)
	}
	stop()
	fmt.Println(<-served)
	// Output:
	// controller 0 of 1
	// <nil>
}

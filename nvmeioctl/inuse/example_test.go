package inuse_test

import (
	"fmt"

	"nvop/nvmeioctl/inuse"
)

func ExampleBlocking() {
	uses := []inuse.Use{
		{Kind: inuse.KindReader, Class: inuse.AcceptOnly, Subject: "/dev/nvme0", Detail: "open for reading", Process: "smartd"},
		{Kind: inuse.KindMounted, Class: inuse.Never, Subject: "/dev/nvme0n1p1", Detail: "mounted at /srv (xfs)"},
	}
	for _, u := range inuse.Blocking(uses, inuse.KindReader) {
		fmt.Println(u.Subject, u.Detail)
	}
	// Output: /dev/nvme0n1p1 mounted at /srv (xfs)
}

package main_test

import "nvop/nvmeioctl/nvmetest/vm"

func soakCases() []vm.Case { return nil }

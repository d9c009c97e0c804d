package sim

import (
	"time"

	"nvop/nvmeioctl/sim/ftl"
)

// Units of the figures below.
const (
	tib = uint64(1) << 40
	// Capacities by IDEMA LBA1-03: 97,696,368 + 1,953,504 x (GB - 50) blocks of 512 B.
	idema1TB    = 1_000_204_886_016
	idema3840GB = 3_840_755_982_336
	idema6400GB = 6_401_252_745_216
	idema7680GB = 7_681_501_126_656
	idema61TB   = 61_451_933_147_136
)

// Profiles returns the models that come with the program, in the order they
// are listed. "Published" figures are the vendor's or a reviewer's
// measurement; "inferred" ones follow from published ones by the model of
// write amplification; "chosen" ones have no source and are plausible.
func Profiles() []Profile {
	return []Profile{
		pblaze7(), pe321(), pe501(), memblazeP6531(), client(),
	}
}

// memblazeFormats is the order in which real Memblaze drives list their
// formats, with the relative performance they report (published: smartctl
// output of P6531DT0384Y00 and P6536CH0320M00).
func memblazeFormats() []Format {
	return []Format{
		{DataBytes: 512, RelativePerformance: 2},
		{DataBytes: 4096},
		{DataBytes: 512, MetadataBytes: 8, RelativePerformance: 2},
		{DataBytes: 4096, MetadataBytes: 8},
		{DataBytes: 4096, MetadataBytes: 64},
	}
}

// wattStates makes operational power states without latencies from watts.
func wattStates(watts ...uint32) []PowerState {
	states := make([]PowerState, len(watts))
	for i, w := range watts {
		states[i] = PowerState{MaxMilliwatts: w * 1000, RelativeThroughput: uint8(i), RelativeLatency: uint8(i)}
	}
	return states
}

// Layouts. How many dies there are follows from the capacity of one and of all;
// planes, blocks and pages are chosen, as is one die of parity in 64 and what
// metadata cost: a floor of 1.02, between the 1.00 and 1.04 that sequential writes
// of such drives show.
const (
	dieBlocks    = 512 // of a plane, for 512 Gb
	metadataPart = 0.0040625
)

// dies is a layout of so many dies, each of so many times 512 Gb nominal, in
// which usable is what part of the nominal capacity collection works in.
func dies(n, halfTerabits uint64, usable float64) ftl.Layout {
	return ftl.Layout{
		Dies: n, PlanesPerDie: 4, BlocksPerPlane: dieBlocks * halfTerabits, PagesPerBlock: 2048, PageBytes: 16 << 10,
		ParityDies: n / 64, ExtraBlocks: usable*64/63 - 1, MetadataShare: metadataPart, UnitBytes: 4096,
	}
}

func pblaze7() Profile {
	p := Profile{
		Name:              "pblaze7-7940-7.68tb",
		Summary:           "Memblaze PBlaze7 7940 7.68 TB, PCIe 5.0, TLC, 128 namespaces",
		Model:             "MEMBLAZE P7940DT0768M00", // inferred from the P6531's naming
		Firmware:          "0B100100",                // chosen
		SerialPrefix:      "SIMP7",
		VendorID:          0x1c5f, // published
		SubsystemVendorID: 0x1c5f,
		OUI:               0x8c1553, // published for the P6531
		Version:           0x00020000,

		CapacityBytes:     idema7680GB, // published
		AllocationBytes:   4096,        // chosen; IDEMA sizes are multiples of it
		MaxNamespaces:     128,         // published
		FirstController:   1,
		Formats:           memblazeFormats(),
		NamespaceFeatures: 0x08, // identifiers are not reused; published for the P6531

		AdminCommands:    0x021e, // format, firmware, namespaces, self-test: published for the P6531; LBA status: chosen
		NVMCommands:      0x01d7, // chosen: the P6531's, and compare, write uncorrectable, verify, copy
		FormatAttributes: fnaCrypto,
		LogAttributes:    0x3e,                         // the P6531's and the list of supported pages
		EventSupport:     oaesNamespace | oaesFirmware, // the second chosen
		Sanitize:         0x7,                          // crypto erase, block erase, overwrite; chosen
		MaxTransferBytes: 128 * 4096,                   // published for the P6531
		ErrorLogEntries:  63,
		WarningKelvin:    273 + 73, CriticalKelvin: 273 + 80,
		PowerStates: wattStates(25, 18, 16, 14, 12), // five states, 25 W by default: published; the lower four chosen

		FirmwareSlots: 3, Slot1ReadOnly: true, ActivatesWithoutReset: true, // published
		FirmwareGranularityBytes: 4096,
		MaxActivation:            5 * time.Second, // chosen

		EnduranceGroup:     true,             // chosen: an NVMe 2.0 drive
		VendorLog:          "memblaze-ca-v3", // chosen: the newest of the three known
		VendorPowerFeature: true,

		Flash: Flash{
			CellBits:    3,                                                    // published: X3-9070 eTLC
			RatedCycles: 7000,                                                 // inferred from 3 DWPD at 6.4 TB
			Ratings:     []Rating{{idema7680GB, 14e15}, {idema6400GB, 35e15}}, // published: 1 and 3 DWPD over 5 years

			RandomWriteIOPS:  411e3, // published: ezFIO at 7.68 TB
			RandomWriteBytes: idema7680GB,
			CollectRatio:     0,      // inferred: NAND bandwidth is the same at both sizes
			RandomReadIOPS:   2828e3, // published, at both sizes

			SequentialReadBytesPerSecond:  14.1e9, // published
			SequentialWriteBytesPerSecond: 11e9,   // published
			ReadLatency:                   54 * time.Microsecond,
			WriteLatency:                  9 * time.Microsecond, // both published
			MixFactor:                     0.87,                 // inferred from the PE321's 70/30 mix
			BufferBytes:                   16 << 20,             // chosen: as much as capacitors carry through a power loss

			SpareThresholdPercent: 5, // published for the P6531
		},
	}
	// 1 Tb dies: published; 64 of them, and 5.3 percent beyond: inferred from 411K
	// and 700K IOPS.
	p.Flash.Build(dies(64, 2, 1.053))
	return p
}

func pe321() Profile {
	p := pblaze7()
	p.Name = "pe321-6.4tb"
	p.Summary = "YMTC PE321 6.4 TB, PCIe 4.0, TLC, 3 drive writes a day"
	p.Model = "YMTC PE321 6.4TB" // inferred
	p.Firmware = "P3210100"      // chosen
	p.SerialPrefix = "SIMY3"
	p.VendorID, p.SubsystemVendorID = 0x1e49, 0x1e49 // published
	p.OUI = 0x3c1e49                                 // chosen
	p.Version = 0x00010400
	p.CapacityBytes = idema6400GB
	p.AllocationBytes, p.ReportsGranularity = 8192, true // chosen; the largest power of two in the capacity
	p.MaxNamespaces = 64                                 // chosen
	p.FirstController = 0
	p.AdminCommands, p.LogAttributes = 0x1e, 0x1e
	p.MaxTransferBytes = 256 * 4096
	p.PowerStates = wattStates(20, 16, 12) // about 19 W: published; the states are chosen
	p.EnduranceGroup = false
	p.VendorLog = "ymtc-ca" // published
	p.VendorPowerFeature = false
	p.Flash.Build(dies(128, 1, 1.05))                // 16 packages of 512 GB: published; the usual 5 percent beyond: inferred
	p.Flash.Ratings = []Rating{{idema6400GB, 35e15}} // published: 3 DWPD over 5 years
	p.Flash.RandomWriteIOPS = 689e3                  // published
	p.Flash.RandomWriteBytes = idema6400GB
	p.Flash.RandomReadIOPS = 1.77e6                // published
	p.Flash.SequentialReadBytesPerSecond = 7.46e9  // published
	p.Flash.SequentialWriteBytesPerSecond = 7.36e9 // published
	p.Flash.ReadLatency = 70 * time.Microsecond    // chosen
	p.Flash.WriteLatency = 10 * time.Microsecond   // chosen
	p.Flash.RatedCycles = 7000                     // inferred from 3 DWPD
	p.Flash.SpareThresholdPercent = 10
	return p
}

func pe501() Profile {
	p := pe321()
	p.Name = "pe501-61.44tb"
	p.Summary = "YMTC PE501 61.44 TB, PCIe 5.0, QLC, 16 KiB mapping units, 5000 cycles"
	p.Model = "YMTC PE501 61.44TB" // inferred
	p.Firmware = "P5010100"        // chosen
	p.SerialPrefix = "SIMY5"
	p.Version = 0x00020000
	p.CapacityBytes = idema61TB // inferred: the IDEMA count of the label
	p.AllocationBytes, p.ReportsGranularity = 4096, false
	p.MaxNamespaces = 128 // chosen
	p.FactoryFormat = 1   // chosen: 4096, as large QLC drives are delivered
	p.AdminCommands = 0x21e
	p.LogAttributes = 0x3e
	p.MaxTransferBytes = 256 * 4096
	p.PowerStates = wattStates(25, 20, 15)
	p.EnduranceGroup = true
	p.OCPLog = true // chosen
	p.Flash = Flash{
		CellBits:         4,    // published: X4-6080
		RatedCycles:      5000, // published
		CyclesPublished:  true,
		RandomWriteIOPS:  50e3,      // published
		RandomWriteBytes: idema61TB, // published
		CollectRatio:     0,         // chosen
		RandomReadIOPS:   3350e3,    // published

		SequentialReadBytesPerSecond:  14.2e9,                 // published
		SequentialWriteBytesPerSecond: 4.039e9,                // published: 3852 MiB/s
		ReadLatency:                   110 * time.Microsecond, // chosen
		WriteLatency:                  12 * time.Microsecond,  // chosen
		MixFactor:                     1.077,                  // published: 123K + 53K at 70/30
		SpareThresholdPercent:         10,                     // chosen
	}
	// 2 Tb dies in 16 packages of 4 TiB: published; 71.5 TB of it usable, and the
	// mapping unit: inferred from the ratio of sequential to random writes.
	l := dies(256, 4, 71.5e12/float64(64*tib))
	l.UnitBytes = 16384
	p.Flash.Build(l)
	return p
}

// memblazeP6531 is the drive of the smartctl output of P6531DT0384Y00; what
// that output shows is published.
func memblazeP6531() Profile {
	p := pblaze7()
	p.Name = "memblaze-p6531-3.84tb"
	p.Summary = "Memblaze PBlaze6 6531 3.84 TB, PCIe 4.0, TLC, one namespace"
	p.Model = "MEMBLAZE P6531DT0384Y00"
	p.Firmware = "0A403300"
	p.SerialPrefix = "SIMP6"
	p.Version = 0x00010400
	p.CapacityBytes = idema3840GB
	p.MaxNamespaces = 1
	p.AdminCommands, p.NVMCommands = 0x1e, 0x0054
	p.LogAttributes = 0x1e
	p.PowerStates = nil
	for _, w := range []uint32{14, 12, 11, 10, 9, 8, 7, 6} {
		p.PowerStates = append(p.PowerStates, PowerState{MaxMilliwatts: w * 1000})
	}
	p.EnduranceGroup = false
	p.VendorLog = "memblaze-ca-v2"   // chosen
	p.Flash.Build(dies(64, 1, 1.05)) // chosen: 4 TiB; the usual 5 percent beyond: inferred
	p.Flash.Ratings = nil
	p.Flash.RandomWriteIOPS = 180e3 // chosen, as are the rates below
	p.Flash.RandomWriteBytes = idema3840GB
	p.Flash.RandomReadIOPS = 1.5e6
	p.Flash.SequentialReadBytesPerSecond = 6.8e9
	p.Flash.SequentialWriteBytesPerSecond = 4.6e9
	p.Flash.ReadLatency = 80 * time.Microsecond
	p.Flash.WriteLatency = 11 * time.Microsecond
	p.Flash.RatedCycles = 5000
	return p
}

// client has no counterpart: it is what a client drive lacks.
func client() Profile {
	p := Profile{
		Name:              "client-1tb",
		Summary:           "client drive 1 TB, PCIe 4.0, TLC, no namespace management, no NAND counters",
		Model:             "NVOP SIM CLIENT 1TB",
		Firmware:          "C1000001",
		SerialPrefix:      "SIMC1",
		VendorID:          0x1b36, // chosen: the id of QEMU's devices
		SubsystemVendorID: 0x1af4,
		OUI:               0x525400, // chosen: locally administered, as QEMU's
		Version:           0x00010400,
		CapacityBytes:     idema1TB,
		AllocationBytes:   512,
		MaxNamespaces:     1,
		FirstController:   0,
		Formats:           []Format{{DataBytes: 512, RelativePerformance: 2}, {DataBytes: 4096, RelativePerformance: 1}},
		AdminCommands:     oacsFormat | oacsFirmware | oacsSelfTest,
		NVMCommands:       0x0054,
		FormatAttributes:  fnaFormatAll | fnaEraseAll | fnaCrypto,
		LogAttributes:     0x1e &^ lpaPersistent &^ lpaTelemetry,
		EventSupport:      oaesNamespace,
		MaxTransferBytes:  256 * 4096,
		ErrorLogEntries:   64,
		WarningKelvin:     273 + 80, CriticalKelvin: 273 + 85,
		VolatileWriteCache: true,
		PowerStates: []PowerState{
			{MaxMilliwatts: 8000},
			{MaxMilliwatts: 4000, RelativeThroughput: 1, RelativeLatency: 1},
			{MaxMilliwatts: 2000, RelativeThroughput: 2, RelativeLatency: 2},
			{MaxMilliwatts: 50, NonOperational: true, EntryMicroseconds: 5000, ExitMicroseconds: 10000, RelativeThroughput: 3, RelativeLatency: 3},
			{MaxMilliwatts: 5, NonOperational: true, EntryMicroseconds: 10000, ExitMicroseconds: 45000, RelativeThroughput: 4, RelativeLatency: 4},
		},
		AutonomousTransitions: true,
		FirmwareSlots:         2,
		MaxActivation:         0,

		Flash: Flash{
			CellBits: 3, RatedCycles: 1500,
			RandomWriteIOPS: 60e3, RandomWriteBytes: idema1TB, CollectRatio: 0.4, RandomReadIOPS: 900e3,
			SequentialReadBytesPerSecond: 7e9, SequentialWriteBytesPerSecond: 1.5e9,
			ReadLatency: 60 * time.Microsecond, WriteLatency: 15 * time.Microsecond,
			MixFactor: 0.87, SpareThresholdPercent: 10,
			BufferBytes: cachePagesMax * cachePageBytes, DrainLatency: 800 * time.Microsecond,
			SLCShare: 0.1, SLCWriteBytesPerSecond: 6e9, SLCFoldBytesPerSecond: 0.75e9,
		},
	}
	// Extra blocks make up for the bad ones and the SLC cache; no parity over dies.
	l := dies(16, 1, 63./64)
	l.MetadataShare = 0.03
	p.Flash.Build(l)
	return p
}

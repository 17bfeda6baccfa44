// The differentiated system description table (ACPI 6.4, 5.2.11.1) of the PC in pc/board.h:
// what a system cannot find out by looking. Compiled by iasl when the project is built.

DefinitionBlock ("dsdt.aml", "DSDT", 2, "ALIBI", "ALIBIPC", 1)
{
    Scope (\_SB)
    {
        Device (PCI0)
        {
            Name (_HID, EisaId ("PNP0A03"))
            Name (_UID, 0)

            // What the host bridge passes on. RAM ends at 3 GB or below; the last 20 MB below 4 GB
            // are the APICs' and the firmware's.
            Name (_CRS, ResourceTemplate ()
            {
                WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
                    0, 0, 0xff, 0, 0x100)
                WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode, EntireRange,
                    0, 0, 0x0cf7, 0, 0x0cf8)
                IO (Decode16, 0x0cf8, 0x0cf8, 1, 8)
                WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode, EntireRange,
                    0, 0x0d00, 0xffff, 0, 0xf300)
                DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, Cacheable, ReadWrite,
                    0, 0xa0000, 0xbffff, 0, 0x20000)
                DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable,
                    ReadWrite, 0, 0xe0000000, 0xfebfffff, 0, 0x1ec00000)
            })

            // Pin INTx of a slot is PIRQ (slot + x - 1) mod 4, with A as 0, and the firmware has
            // led PIRQA to PIRQD to these lines, which are the I/O APIC's inputs as well.
            Name (PIRQ, Buffer () { 10, 10, 11, 11 })
            Method (_PRT, 0, Serialized)
            {
                Local0 = Package (128) {}
                Local1 = 0
                While (Local1 < 128)
                {
                    Local2 = Local1 >> 2
                    Local3 = Local1 & 3
                    Local4 = Package (4) { 0, 0, 0, 0 }
                    Local4 [0] = (Local2 << 16) | 0xffff
                    Local4 [1] = Local3
                    Local4 [3] = DerefOf (PIRQ [(Local2 + Local3 + 3) & 3])
                    Local0 [Local1] = Local4
                    Local1++
                }
                Return (Local0)
            }

            Device (ISA)
            {
                Name (_ADR, 0x00010000)

                Device (PIC)
                {
                    Name (_HID, EisaId ("PNP0000"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x20, 0x20, 1, 2)
                        IO (Decode16, 0xa0, 0xa0, 1, 2)
                        IO (Decode16, 0x4d0, 0x4d0, 1, 2)
                        IRQNoFlags () { 2 }
                    })
                }
                Device (TIMR)
                {
                    Name (_HID, EisaId ("PNP0100"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x40, 0x40, 1, 4)
                        IRQNoFlags () { 0 }
                    })
                }
                Device (RTC)
                {
                    Name (_HID, EisaId ("PNP0B00"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x70, 0x70, 1, 2)
                        IRQNoFlags () { 8 }
                    })
                }
                Device (KBD)
                {
                    Name (_HID, EisaId ("PNP0303"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x60, 0x60, 1, 1)
                        IO (Decode16, 0x64, 0x64, 1, 1)
                        IRQNoFlags () { 1 }
                    })
                }
                Device (MOU)
                {
                    Name (_HID, EisaId ("PNP0F13"))
                    Name (_CRS, ResourceTemplate () { IRQNoFlags () { 12 } })
                }
                Device (COM1)
                {
                    Name (_HID, EisaId ("PNP0501"))
                    Name (_UID, 1)
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x3f8, 0x3f8, 1, 8)
                        IRQNoFlags () { 4 }
                    })
                }
                // pvpanic; the name is QEMU's, and so is the identifier that drivers know.
                Device (PEVT)
                {
                    Name (_HID, "QEMU0001")
                    Name (_STA, 0x0f)
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x505, 0x505, 1, 1)
                    })
                }
                Device (FPU)
                {
                    Name (_HID, EisaId ("PNP0C04"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0xf0, 0xf0, 1, 1)
                        IRQNoFlags () { 13 }
                    })
                }
                // Ports that no driver asks for.
                Device (SYSR)
                {
                    Name (_HID, EisaId ("PNP0C02"))
                    Name (_CRS, ResourceTemplate ()
                    {
                        IO (Decode16, 0x61, 0x61, 1, 1)
                        IO (Decode16, 0x80, 0x80, 1, 1)
                        IO (Decode16, 0x92, 0x92, 1, 1)
                        IO (Decode16, 0xb2, 0xb2, 1, 2)
                        IO (Decode16, 0x600, 0x600, 1, 0x40)
                        IO (Decode16, 0x700, 0x700, 1, 0x10)
                    })
                }
            }
        }
    }

    Scope (\_SB)
    {
        Device (HPET)
        {
            Name (_HID, EisaId ("PNP0103"))
            Name (_UID, 0)
            Name (_CRS, ResourceTemplate ()
            {
                Memory32Fixed (ReadOnly, 0xfed00000, 0x400)
            })
        }
    }

    // Soft off is sleep type 0 (devices/time/acpi_pm.h).
    Name (\_S5, Package () { 0, 0, 0, 0 })
}

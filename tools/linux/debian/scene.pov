// SPDX-License-Identifier: Apache-2.0
// What the row povray renders: two lights, a floor of squares, and a spiral of spheres that mirror
// each other, some of glass. Nothing of POV-Ray's own libraries.
#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 8 }

camera { location <0, 3.5, -8> look_at <0, 1, 0> angle 50 }
light_source { <20, 30, -25> color rgb <1.0, 0.95, 0.9> }
light_source { <-30, 12, -8> color rgb <0.3, 0.35, 0.45> shadowless }
background { color rgb <0.25, 0.4, 0.6> }

plane {
  y, 0
  pigment { checker color rgb <0.85, 0.85, 0.8>, color rgb <0.15, 0.2, 0.25> }
  finish { ambient 0.1 diffuse 0.7 reflection 0.15 }
}

#declare Mirror = finish { ambient 0.05 diffuse 0.4 specular 0.6 roughness 0.01 reflection 0.5 };
#declare Glass = finish { ambient 0 diffuse 0.1 specular 0.8 roughness 0.005 reflection 0.1 };

#declare I = 0;
#while (I < 60)
  #declare Angle = I * 31;
  #declare Away = 0.4 + I * 0.055;
  sphere {
    <Away * cos(radians(Angle)), 0.3 + 0.05 * I, Away * sin(radians(Angle))>, 0.28
    #if (mod(I, 4) = 0)
      pigment { color rgbf <0.9, 1.0, 0.95, 0.9> }
      finish { Glass }
      interior { ior 1.5 }
    #else
      pigment { color rgb <0.3 + 0.7 * mod(I, 3) / 2, 0.4 + 0.1 * mod(I, 5), 0.9 - 0.2 * mod(I, 4)> }
      finish { Mirror }
    #end
  }
  #declare I = I + 1;
#end
